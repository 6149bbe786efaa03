"""Queries about the audit log: appended to and read, never changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import AuditEntry, Project
from store.types import new_id


@dataclass(frozen=True)
class AuditFilter:
    """Which entries; an empty field means any.

    Attributes:
        without: Acts that are left out.
        since: The first instant.
        until: The instant after the last.
    """

    actions: Sequence[str] = ()
    project_ids: Sequence[str] = ()
    actor_key_ids: Sequence[str] = ()
    since: datetime | None = None
    until: datetime | None = None
    without: Sequence[str] = ()


async def append(  # noqa: PLR0913
    session: AsyncSession,
    organization_id: str,
    *,
    action: str,
    target_id: str,
    source: str,
    actor_name: str,
    actor_key_id: str | None = None,
    project_id: str | None = None,
    address: str | None = None,
    request_id: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Remember an act, in the transaction in which it happens."""
    session.add(
        AuditEntry(
            id=new_id("audit_log-"),
            organization_id=organization_id,
            project_id=project_id,
            action=action,
            target_id=target_id,
            source=source,
            actor_key_id=actor_key_id,
            actor_name=actor_name,
            address=address,
            request_id=request_id,
            detail=dict(detail) if detail else None,
        )
    )
    await session.flush()


async def get(session: AsyncSession, organization_id: str, entry_id: str) -> AuditEntry | None:
    """One entry of the organisation."""
    statement = select(AuditEntry).where(
        AuditEntry.id == entry_id, AuditEntry.organization_id == organization_id
    )
    return (await session.execute(statement)).scalar_one_or_none()


async def page(
    session: AsyncSession,
    organization_id: str,
    *,
    only: AuditFilter = AuditFilter(),
    after: AuditEntry | None = None,
    before: AuditEntry | None = None,
    limit: int,
) -> list[tuple[AuditEntry, str | None]]:
    """Entries and the names of their projects, newest first.

    Args:
        session: An open transaction.
        organization_id: Whose log.
        only: Which entries.
        after: Only those older than this one: the next page.
        before: Only those newer than this one, the nearest: the page before.
        limit: How many at most.
    """
    statement = (
        select(AuditEntry, Project.name)
        .outerjoin(Project, Project.id == AuditEntry.project_id)
        .where(AuditEntry.organization_id == organization_id)
    )
    if only.without:
        statement = statement.where(AuditEntry.action.not_in(only.without))
    for column, words in (
        (AuditEntry.action, only.actions),
        (AuditEntry.project_id, only.project_ids),
        (AuditEntry.actor_key_id, only.actor_key_ids),
    ):
        if words:
            statement = statement.where(column.in_(words))
    if only.since is not None:
        statement = statement.where(AuditEntry.created_at >= only.since)
    if only.until is not None:
        statement = statement.where(AuditEntry.created_at < only.until)
    if after is not None:
        statement = statement.where(AuditEntry.seq < after.seq)
    if before is not None:
        statement = statement.where(AuditEntry.seq > before.seq)
    backwards = before is not None and after is None
    order = AuditEntry.seq.asc() if backwards else AuditEntry.seq.desc()
    rows = (await session.execute(statement.order_by(order).limit(limit))).all()
    found: list[tuple[AuditEntry, str | None]] = [(entry, name) for entry, name in rows]
    return found[::-1] if backwards else found
