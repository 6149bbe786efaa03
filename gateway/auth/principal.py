"""Who is asking."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Principal:
    """The key a request came with, and whose it is."""

    project_id: str
    key_id: str
    scopes: frozenset[str] = frozenset()
    role: str | None = None
    """What it may do with its organisation, if anything."""
