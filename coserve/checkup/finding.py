"""What was found of one thing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        state: `good`, `warn` (it works, though not as it could), `bad`, or `unknown`.
        fix: What to do; empty if nothing.
    """

    name: str
    state: str
    found: str
    fix: str = ""
