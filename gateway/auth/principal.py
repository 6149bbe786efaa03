"""Who is asking."""

from __future__ import annotations

from dataclasses import dataclass

ADMIN_SCOPE = "admin"


@dataclass(frozen=True)
class Principal:
    """The key a request came with, and whose it is."""

    project_id: str
    key_id: str
    scopes: frozenset[str] = frozenset()

    @property
    def is_admin(self) -> bool:
        """Whether the key may use the dashboard."""
        return ADMIN_SCOPE in self.scopes
