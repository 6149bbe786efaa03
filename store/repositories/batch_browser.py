"""Batches of an organisation as an operator looks through them: filtered, searched, sorted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Text, cast, func, or_, select, true, tuple_, union
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute, aliased

from store.models import ApiKey, Batch, BatchRow, File, Project
from store.repositories.overview import STATUS_GROUPS, BatchOverview, overviews
from store.states import BatchStatus


@dataclass(frozen=True)
class Order:
    """An order of the list.

    Attributes:
        called: On the page.
        column: By which it sorts; then by id.
        downwards: The largest first.
    """

    called: str
    column: InstrumentedAttribute[Any]
    downwards: bool = False


ORDERS: Final[dict[str, Order]] = {
    "newest": Order("Newest first", Batch.created_at, downwards=True),
    "oldest": Order("Oldest first", Batch.created_at),
    "due": Order("Expires first", Batch.expires_at),
    "due_last": Order("Expires last", Batch.expires_at, downwards=True),
    "largest": Order("Most rows first", Batch.num_total, downwards=True),
    "smallest": Order("Fewest rows first", Batch.num_total),
    "priority": Order("Highest priority first", Batch.priority, downwards=True),
    "status": Order("By status", Batch.status),
    "status_down": Order("By status, downwards", Batch.status, downwards=True),
}
"""By the word that an address has for it."""
NEWEST: Final = "newest"
MAX_MODELS: Final = 100
MAX_SEARCHED: Final = 10_000
"""Batches that a search for a part of a word looks at, the newest ones."""


@dataclass(frozen=True)
class BatchFilter:
    """Which batches, in which order; an empty field means any.

    Attributes:
        group: One of `STATUS_GROUPS`, or one status.
        search: Part of an id, name, model, endpoint or of the metadata, among the newest
            `MAX_SEARCHED`; or a whole id or custom id of any batch.
        order: One of `ORDERS`.
    """

    group: str = ""
    project: str = ""
    model: str = ""
    endpoint: str = ""
    search: str = ""
    order: str = NEWEST

    def __post_init__(self) -> None:
        """Words that mean nothing are as good as none."""
        if not self.statuses:
            object.__setattr__(self, "group", "")
        if self.order not in ORDERS:
            object.__setattr__(self, "order", NEWEST)

    @property
    def statuses(self) -> tuple[str, ...]:
        """Those that are asked for."""
        if self.group in tuple(BatchStatus):
            return (self.group,)
        return STATUS_GROUPS.get(self.group, ())

    def words(self) -> dict[str, str]:
        """What it takes in an address to say so."""
        said = {name: str(value) for name, value in vars(self).items() if value}
        if self.order == NEWEST:
            del said["order"]
        return said


def _matches(search: str, organization_id: str) -> ColumnElement[bool]:
    """Whole ids are found by their indexes; parts of words in the newest batches alone."""
    wanted = search.lower()
    of_project = (
        select(Batch.id, Batch.created_at)
        .where(Batch.project_id == Project.id)
        .order_by(Batch.created_at.desc(), Batch.id.desc())
        .limit(MAX_SEARCHED)
        .lateral()
    )
    newest = (
        select(of_project.c.id)
        .select_from(Project)
        .join(of_project, true())
        .where(Project.organization_id == organization_id)
        .order_by(of_project.c.created_at.desc(), of_project.c.id.desc())
        .limit(MAX_SEARCHED)
        .cte("newest")
    )
    words = (
        Batch.id,
        Batch.input_file_id,
        Batch.output_file_id,
        Batch.error_file_id,
        Batch.model,
        Batch.endpoint,
        File.filename,
        Project.name,
        ApiKey.name,
        cast(Batch.batch_metadata, Text),
    )
    like_it = (
        select(Batch.id)
        .join(newest, newest.c.id == Batch.id)
        .join(File, File.id == Batch.input_file_id)
        .join(Project, Project.id == Batch.project_id)
        .outerjoin(ApiKey, ApiKey.id == Batch.key_id)
        .where(or_(*(func.strpos(func.lower(word), wanted) > 0 for word in words)))
    )
    files = (Batch.input_file_id, Batch.output_file_id, Batch.error_file_id)
    whole = [select(Batch.id).where(column == search) for column in (Batch.id, *files)]
    rows = select(BatchRow.batch_id).where(BatchRow.custom_id == search)
    # Found once for all batches, not by a look into each.
    return Batch.id.in_(union(like_it, *whole, rows))


def _conditions(wanted: BatchFilter, organization_id: str) -> list[ColumnElement[bool]]:
    found = [_matches(wanted.search, organization_id)] if wanted.search else []
    if wanted.statuses:
        found.append(Batch.status.in_(wanted.statuses))
    for column, word in (
        (Batch.project_id, wanted.project),
        (Batch.model, wanted.model),
        (Batch.endpoint, wanted.endpoint),
    ):
        if word:
            found.append(column == word)
    return found


async def live_ids(
    session: AsyncSession, organization_id: str, wanted: BatchFilter
) -> Sequence[str]:
    """Ids of the live batches that a filter matches, the oldest first, `MAX_SEARCHED` at most."""
    query = (
        select(Batch.id)
        .join(Project, Project.id == Batch.project_id)
        .where(
            Project.organization_id == organization_id,
            Batch.status.in_(STATUS_GROUPS["live"]),
            *_conditions(wanted, organization_id),
        )
        .order_by(Batch.created_at, Batch.id)
        .limit(MAX_SEARCHED)
    )
    return list(await session.scalars(query))


async def page(
    session: AsyncSession,
    organization_id: str,
    wanted: BatchFilter,
    *,
    after: str | None,
    limit: int,
) -> tuple[Sequence[BatchOverview], bool]:
    """Batches of an organisation, and whether more follow.

    Args:
        session: An open transaction.
        organization_id: Whose.
        wanted: Which, in which order.
        after: Only those that come after this batch; an unknown id means the first page.
        limit: How many at most.
    """
    query = overviews(organization_id).where(*_conditions(wanted, organization_id))
    chosen = ORDERS[wanted.order]
    key = chosen.column
    if after is not None:
        cursor = aliased(Batch)
        border = select(getattr(cursor, key.key)).where(cursor.id == after).scalar_subquery()
        here, there = tuple_(key, Batch.id), tuple_(border, after)
        query = query.where(
            or_(border.is_(None), here < there if chosen.downwards else here > there)
        )
    order = (key.desc(), Batch.id.desc()) if chosen.downwards else (key.asc(), Batch.id.asc())
    rows = (await session.execute(query.order_by(*order).limit(limit + 1))).mappings().all()
    return [BatchOverview.of(row) for row in rows[:limit]], len(rows) > limit


async def models(session: AsyncSession, organization_id: str) -> Sequence[str]:
    """The models that batches of an organisation have asked for."""
    query = (
        select(Batch.model)
        .join(Project, Project.id == Batch.project_id)
        .where(Project.organization_id == organization_id, Batch.model.is_not(None))
        .distinct()
        .order_by(Batch.model)
        .limit(MAX_MODELS)
    )
    return [model for model in (await session.execute(query)).scalars() if model is not None]
