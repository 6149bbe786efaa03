"""Who does something to a tenant, and the entry that it leaves in the audit log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from fastapi import Request
from sqlalchemy.ext.asyncio import AsyncSession

from gateway.auth.principal import Principal
from store.models import WebhookEndpoint
from store.repositories import audit


class Action(StrEnum):
    """What the audit log knows; OpenAI's words where it has one."""

    ORGANIZATION_CREATED = "organization.created"
    PROJECT_CREATED = "project.created"
    PROJECT_UPDATED = "project.updated"
    PROJECT_ARCHIVED = "project.archived"
    KEY_CREATED = "api_key.created"
    KEY_UPDATED = "api_key.updated"
    KEY_ROTATED = "api_key.rotated"
    KEY_DELETED = "api_key.deleted"
    FILE_DELETED = "file.deleted"
    BATCH_CREATED = "batch.created"
    BATCH_CANCELLED = "batch.cancelled"
    BATCH_PAUSED = "batch.paused"
    BATCH_RESUMED = "batch.resumed"
    BATCH_UPDATED = "batch.updated"
    BATCH_RETRIED = "batch.retried"
    BATCH_FILE_DOWNLOADED = "batch.file_downloaded"
    BATCH_ROW_READ = "batch.row_read"
    BATCH_ROW_RETRIED = "batch.row_retried"
    WEBHOOK_CREATED = "webhook_endpoint.created"
    WEBHOOK_UPDATED = "webhook_endpoint.updated"
    WEBHOOK_ROTATED = "webhook_endpoint.secret_rotated"
    WEBHOOK_DELETED = "webhook_endpoint.deleted"
    WEBHOOK_TESTED = "webhook_endpoint.tested"
    WEBHOOK_REPLAYED = "webhook_delivery.replayed"
    ENGINE_ADDED = "engine.added"
    ENGINE_NAMED = "engine.named"
    ENGINE_REMOVED = "engine.removed"
    ENGINE_DRAINED = "engine.drained"
    ENGINE_RESUMED = "engine.resumed"
    ENGINE_LEVEL_SET = "engine.level_set"
    ENGINE_PROFILED = "engine.profiled"
    LOGIN = "login.succeeded"


@dataclass(frozen=True)
class Actor:
    """Who acts, for which organisation, and through which door.

    Attributes:
        source: The door.
        name: Name of the key, or of the user of the host.
        key_id: The key; none on the command line.
        project_id: The project of that key.
        address: Network address of the request.
    """

    organization_id: str
    source: Literal["cli", "api", "dashboard", "system"]
    name: str
    key_id: str | None = None
    project_id: str | None = None
    address: str | None = None
    request_id: str | None = None

    @property
    def named(self) -> str:
        """What the timeline of a batch calls it."""
        return f"{self.name} ({self.source})"

    async def record(
        self,
        session: AsyncSession,
        action: Action,
        target_id: str,
        *,
        project_id: str | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        """Append an entry in the transaction of the act. `detail` never holds a secret."""
        await audit.append(
            session,
            self.organization_id,
            action=action,
            target_id=target_id,
            source=self.source,
            actor_name=self.name,
            actor_key_id=self.key_id,
            project_id=project_id,
            address=self.address,
            request_id=self.request_id,
            detail=detail,
        )

    def noting(self, action: Action) -> Callable[[AsyncSession, WebhookEndpoint], Awaitable[None]]:
        """What appends the entry of an act on an endpoint, in whose transaction it is called.

        Its name and not its address, which may hold a token.
        """

        async def note(session: AsyncSession, endpoint: WebhookEndpoint) -> None:
            await self.record(
                session,
                action,
                endpoint.id,
                project_id=endpoint.project_id,
                detail={"data": {"name": endpoint.name}},
            )

        return note


def api_actor(request: Request, principal: Principal) -> Actor:
    """The actor of a request to the API."""
    return Actor(
        organization_id=principal.organization_id,
        source="api",
        name=principal.key_name,
        key_id=principal.key_id,
        project_id=principal.project_id,
        address=address_of(request),
        request_id=request.state.request_id,
    )


def address_of(request: Request) -> str | None:
    """Where a request came from, as the server knows it."""
    return request.client.host if request.client else None
