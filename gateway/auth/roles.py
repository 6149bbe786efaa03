"""What an operator may do with an organisation: the one table of roles, and the one check.

A role sits on a key; the dashboard and the administration API both ask here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from api.errors import PermissionDenied


class Permission(StrEnum):
    """One kind of act."""

    VIEW = "view"
    """See batches, engines, projects, keys (never their text) and usage."""
    OPERATE = "operate"
    """Submit, cancel and otherwise steer batches of any project; download their files."""
    MANAGE = "manage"
    """Make and change projects, keys, roles and limits."""
    AUDIT = "audit"
    """Read the audit log."""


ROLES: Final[Mapping[str, frozenset[Permission]]] = {
    "viewer": frozenset({Permission.VIEW}),
    "operator": frozenset({Permission.VIEW, Permission.OPERATE}),
    "admin": frozenset(Permission),
}


def may(role: str | None, permission: Permission) -> bool:
    """Whether a role allows something."""
    return role is not None and permission in ROLES.get(role, frozenset())


def check_role(role: str | None, permission: Permission) -> None:
    """Refuse what a role does not allow.

    Raises:
        PermissionDenied: It does not.
    """
    if not may(role, permission):
        allowed = " or ".join(name for name, granted in ROLES.items() if permission in granted)
        has = f"has the role {role}" if role else "has no role"
        raise PermissionDenied(f"This key {has}; this needs the role {allowed}.")
