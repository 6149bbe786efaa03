"""What a key may do in its project: words, and what each of them opens.

The first part of a path says which scope it needs; a path that is not in the table needs one that
no key has. A test walks every route of the app over it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from api.errors import PermissionDenied
from gateway.auth.principal import Principal

READ: Final = "read"
CONTENTS: Final = "contents"

SCOPES: Final[Mapping[str, str]] = {
    "chat": "ask models: chat, completions, embeddings",
    "files": "upload, read and delete files",
    "batches": "create, read and steer batches, and read their results",
    "webhooks": "make, read, change and remove webhook endpoints",
    READ: "see files, batches and webhook endpoints, but not what is in them",
    CONTENTS: "what 'read' sees, and what is in it: contents of files, and results",
}

READABLE: Final = frozenset(
    {
        "/files",
        "/files/{file_id}",
        "/batches",
        "/batches/{batch_id}",
        "/batches/{batch_id}/events",
        "/webhook_endpoints",
        "/webhook_endpoints/{webhook_endpoint_id}",
        "/webhook_event_types",
    }
)
"""What `read` may GET. A route that is not named here may show prompts and answers."""

WITH_CONTENTS: Final = frozenset({"files", "batches", "webhooks"})
"""Scopes whose GETs `contents` opens. Stored chat is for keys that may chat."""

ANY: Final = ""
"""Every key may."""

SCOPE_OF: Final[Mapping[str, str]] = {
    "chat": "chat",
    "completions": "chat",
    "embeddings": "chat",
    "responses": "chat",
    "conversations": "chat",
    "files": "files",
    "uploads": "files",
    "batches": "batches",
    "webhook_endpoints": "webhooks",
    "webhook_event_types": "webhooks",
    "models": ANY,
    "organization": ANY,  # what an operator may do is a matter of roles
}


def needed_scope(path: str) -> str | None:
    """The scope that a route needs: `ANY`, one of `SCOPES`, or none that exists."""
    first = path.removeprefix("/v1").removeprefix("/").partition("/")[0]
    return SCOPE_OF.get(first)


def check_scope(principal: Principal, method: str, path: str) -> None:
    """Refuse what the key is not for.

    Raises:
        PermissionDenied: The scope is missing.
    """
    needed = needed_scope(path)
    if needed == ANY or needed in principal.scopes:
        return
    opening = [f"'{needed or 'none'}'"]
    if method in ("GET", "HEAD") and needed in WITH_CONTENTS:
        also = [CONTENTS] + [READ] * (path.removeprefix("/v1") in READABLE)
        if not principal.scopes.isdisjoint(also):
            return
        opening.append(f"'{also[-1]}'")
    raise PermissionDenied(
        f"This API key may not do this: it lacks the scope {' or '.join(opening)}. Use a key that "
        "has it, or ask an administrator for one."
    )
