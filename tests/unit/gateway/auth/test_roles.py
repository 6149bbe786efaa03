"""Roles: one table, each role includes the one below it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from api.errors import PermissionDenied
from gateway.auth.roles import ROLES, Permission, check_role, may
from store.models.key import KEY_ROLES


def test_the_roles_are_those_of_the_store_and_each_includes_the_one_before() -> None:
    assert tuple(ROLES) == KEY_ROLES
    granted = list(ROLES.values())
    assert all(less < more for less, more in pairwise(granted))
    assert granted[-1] == set(Permission)


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        (None, set()),
        ("root", set()),
        ("viewer", {Permission.VIEW}),
        ("operator", {Permission.VIEW, Permission.OPERATE}),
        ("admin", set(Permission)),
    ],
)
def test_what_a_role_may(role: str | None, allowed: set[Permission]) -> None:
    for permission in Permission:
        assert may(role, permission) == (permission in allowed)
        if permission not in allowed:
            with pytest.raises(PermissionDenied, match="this needs the role"):
                check_role(role, permission)
