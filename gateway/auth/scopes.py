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

SCOPES: Final[Mapping[str, str]] = {
    "chat": "ask models: chat, completions, embeddings",
    "files": "upload, read and delete files",
    "batches": "create, read and steer batches, and read their results",
    "webhooks": "make, read, change and remove webhook endpoints",
    READ: "whatever only reads: files, batches, results and webhook endpoints",
}

READABLE: Final = frozenset({"files", "batches", "webhooks"})
"""Scopes whose GETs `read` opens. Stored prompts and answers of chat are for keys that may chat."""

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
    if method in ("GET", "HEAD") and READ in principal.scopes and needed in READABLE:
        return
    raise PermissionDenied(
        f"This API key may not do this: it lacks the scope '{needed or 'none'}'. Use a key that "
        "has it, or ask an administrator for one."
    )
