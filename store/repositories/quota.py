"""Queries about what a project may have: enqueued tokens (row B-31), batches, stored bytes.

Sums are taken over what is there each time: there is no counter that could drift, and a row's
tokens are free the moment it ends, for whatever reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Select, func, literal, or_, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import (
    Batch,
    Conversation,
    ConversationItem,
    File,
    PartedUpload,
    Project,
    StoredResponse,
    UploadedPart,
)
from store.states import LIVE_STATUSES, BatchStatus, UploadStatus


async def project_limit(session: AsyncSession, project_id: str) -> int | None:
    """The project's own limit, if it has one."""
    limit: int | None = await session.scalar(
        select(Project.batch_enqueued_token_limit).where(Project.id == project_id)
    )
    return limit


async def find_project(session: AsyncSession, project_id: str) -> Project:
    """The project with its limits, read anew."""
    return await session.get_one(Project, project_id, populate_existing=True)


async def lock_project(session: AsyncSession, project_id: str) -> None:
    """One transaction at a time decides about what the project may have besides; first of all."""
    await session.execute(
        text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 12))"), {"name": project_id}
    )


async def live_batches(session: AsyncSession, project_id: str) -> int:
    """How many batches of the project have not ended."""
    return int(await session.scalar(_num_live(project_id)) or 0)


async def batches_of_hour(session: AsyncSession, project_id: str) -> int:
    """How many batches the project created within the last hour."""
    return int(await session.scalar(_num_of_hour(project_id)) or 0)


def _num_live(project_id: str) -> Select[int]:
    return select(func.count()).where(
        Batch.project_id == project_id,
        Batch.response_id.is_(None),
        Batch.status.in_(LIVE_STATUSES),
    )


def _num_of_hour(project_id: str) -> Select[int]:
    since = func.statement_timestamp() - timedelta(hours=1)
    return select(func.count()).where(
        Batch.project_id == project_id, Batch.response_id.is_(None), Batch.created_at > since
    )


@dataclass(frozen=True)
class BatchUse:
    """What a project had of batches at one instant.

    Attributes:
        num_made: Batches that it ever created.
        num_live: Those that had not ended.
        num_of_hour: Those created within an hour.
        max_live: How many may live; none: no limit of its own.
        max_of_hour: The same within an hour.
    """

    num_made: int
    num_live: int
    num_of_hour: int
    max_live: int | None
    max_of_hour: int | None


async def batch_use(session: AsyncSession, project_id: str) -> BatchUse:
    """Counts the project's live batches and those of an hour: see `batch.add` for what it saves."""
    found = await session.execute(
        select(
            Project.batches_made.label("num_made"),
            _num_live(project_id).scalar_subquery().label("num_live"),
            _num_of_hour(project_id).scalar_subquery().label("num_of_hour"),
            Project.live_batches.label("max_live"),
            Project.batches_per_hour.label("max_of_hour"),
        ).where(Project.id == project_id)
    )
    return BatchUse(**found.mappings().one())


async def stored_bytes(session: AsyncSession, project_id: str) -> int:
    """How much the project's files, parts of open uploads, responses and conversations hold.

    What is deleted, cancelled or expired does not count.
    """
    of_files = select(func.coalesce(func.sum(File.size_bytes), 0)).where(
        File.project_id == project_id,
        File.deleted_at.is_(None),
        or_(File.expires_at.is_(None), File.expires_at > func.statement_timestamp()),
    )
    of_parts = (
        select(func.coalesce(func.sum(UploadedPart.size_bytes), 0))
        .join(PartedUpload, PartedUpload.id == UploadedPart.upload_id)
        .where(
            PartedUpload.project_id == project_id,
            PartedUpload.status == UploadStatus.PENDING,
            PartedUpload.expires_at > func.statement_timestamp(),
        )
    )
    of_responses = select(
        func.coalesce(
            func.sum(
                func.octet_length(StoredResponse.body)
                + func.octet_length(StoredResponse.input_items)
            ),
            0,
        )
    ).where(
        StoredResponse.project_id == project_id,
        StoredResponse.expires_at > func.statement_timestamp(),
    )
    of_conversations = (
        select(func.coalesce(func.sum(func.octet_length(ConversationItem.item)), 0))
        .join(Conversation, Conversation.id == ConversationItem.conversation_id)
        .where(
            Conversation.project_id == project_id,
            Conversation.expires_at > func.statement_timestamp(),
        )
    )
    kinds = (of_files, of_parts, of_responses, of_conversations)
    query = select(sum((kind.scalar_subquery() for kind in kinds), literal(0)))
    return int(await session.scalar(query) or 0)


async def lock(session: AsyncSession, project_id: str, model: str) -> None:
    """One transaction at a time decides about a project's quota of a model.

    Taken before the rows of a batch, and never while a batch is locked that is not new.
    """
    await session.execute(
        text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 11))"),
        {"name": f"{project_id} {model}"},
    )


async def enqueued_tokens(session: AsyncSession, project_id: str, model: str) -> int:
    """Estimated prompt tokens of the rows that are still to run, over all running batches.

    Rows of a batch that is being cancelled, or whose window has ended, will not run any more.
    """
    found = await session.scalar(
        text(
            """
            SELECT sum(r.num_tokens) FROM batches b JOIN batch_rows r ON r.batch_id = b.id
            WHERE b.project_id = :project_id AND b.model = :model AND b.status = 'in_progress'
              AND b.expires_at > statement_timestamp() AND r.status IN ('pending', 'leased')
            """
        ),
        {"project_id": project_id, "model": model},
    )
    return int(found or 0)


async def live_models(session: AsyncSession, project_id: str) -> list[str]:
    """The models that running batches of the project ask for."""
    query = (
        select(Batch.model)
        .where(
            Batch.project_id == project_id,
            Batch.status == BatchStatus.IN_PROGRESS,
            Batch.model.is_not(None),
        )
        .distinct()
        .order_by(Batch.model)
    )
    return [model for model in (await session.execute(query)).scalars() if model is not None]


async def tokens_of_rows(session: AsyncSession, batch_id: str, statuses: list[str]) -> int:
    """Estimated prompt tokens of a batch's rows in some statuses."""
    found = await session.scalar(
        text(
            "SELECT sum(num_tokens) FROM batch_rows"
            " WHERE batch_id = :batch_id AND status = ANY(:statuses)"
        ),
        {"batch_id": batch_id, "statuses": statuses},
    )
    return int(found or 0)
