"""The unit of a checkup: one thing, its state, its fix."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """What was found of one thing, and what to do.

    Attributes:
        state: `good`, `warn` (it works, though not as it could), `bad`, or `unknown`.
        fix: What to do; empty if nothing.
    """

    name: str
    state: str
    found: str
    fix: str = ""
