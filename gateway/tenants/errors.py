"""What can be wrong about an act on a tenant.

NotFound 404
├─ ProjectNotFound
└─ KeyNotFound
"""

from __future__ import annotations

from api.errors import NotFound


class ProjectNotFound(NotFound):
    """No such project in the caller's organisation (row T-29)."""

    def __init__(self, project_id: str, *, param: str = "project_id") -> None:
        super().__init__(f"No project found with id '{project_id[:64]}'.", param=param)


class KeyNotFound(NotFound):
    """No such key in the caller's organisation, or one that was revoked (row T-29)."""

    def __init__(self, key_id: str, *, param: str = "key_id") -> None:
        super().__init__(f"No API key found with id '{key_id[:64]}'.", param=param)
