"""The page of one batch: how far it is, what failed, what a retry would run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from api.errors import NotFound
from batch.steer import MAX_PRIORITY, MIN_PRIORITY
from gateway.batch_shapes import extensions
from gateway.dashboard import harvested
from gateway.dashboard.batch_view import BatchView, EventView, FailedRowView, progress_chart
from gateway.dashboard.fragments import Fragments
from gateway.dashboard.resources import Resources
from gateway.dashboard.row_errors import MAX_GROUPED, RetryOutlook, outlook
from gateway.dashboard.templating import render
from store.repositories import event, overview, row_browser
from store.repositories.progress import retry_of

MAX_EVENTS: Final = 50
MAX_FAILED_ROWS: Final = 20
MAX_CHART_POINTS: Final = 120
MAX_OUTLOOKS: Final = 64


@dataclass(frozen=True)
class BatchPage:
    """One batch's page, for operators of its organisation."""

    organization_id: str
    batch_id: str

    @property
    def fresh_s(self) -> float:
        return 0.9

    async def read(self, resources: Resources) -> Fragments:
        """See `LivingPage`.

        Raises:
            NotFound: There is no such batch.
        """
        async with resources.database.snapshot() as work:
            found = await overview.one(work, self.organization_id, self.batch_id)
            if found is None:
                raise NotFound(f"No batch found with id '{self.batch_id[:64]}'.")
            batch = found.batch
            points = await overview.progress(work, batch, max_points=MAX_CHART_POINTS)
            events = await event.last(work, batch.id, limit=MAX_EVENTS)
            failed = await overview.failed_rows(work, batch, limit=MAX_FAILED_ROWS)
            (extension,) = await extensions(work, resources.engine_pool, [batch])
            retry = await retry_of(work, batch.id)
            view = BatchView(found, extension, retry.id if retry is not None else None)
            again = await _outlook(work, resources, view)
            day = await harvested.of_day(work, resources)
        values = {
            "b": view,
            "again": again,
            "harvest": harvested.of_batch(batch, day),
            "chart": progress_chart(points, view),
            "events": [EventView.of(event) for event in events],
            "failed": [FailedRowView.of(row) for row in failed],
        }
        names = ("head", "progress", "chart", "errors", "files", "timeline", "facts", "retry")
        return Fragments(
            whole={f"batch-{n}": render(f"fragments/batch_{n}.html", **values) for n in names},
            facts={
                "name": found.input_name,
                "batch_id": batch.id,
                "priority": batch.priority,
                "min_priority": MIN_PRIORITY,
                "max_priority": MAX_PRIORITY,
            },
            statuses={found.input_name: view.label},
        )


async def _outlook(
    work: AsyncSession, resources: Resources, view: BatchView
) -> RetryOutlook | None:
    """What a retry of it would run; none where it cannot be retried.

    Read once: the results of a batch that is over do not change.
    """
    if not view.retriable:
        return None
    known = resources.outlooks.get(view.batch.id)
    if known is None:
        lines = await row_browser.failures(work, view.batch, limit=MAX_GROUPED)
        known = outlook(view.batch, lines, limit=MAX_GROUPED)
        if len(resources.outlooks) >= MAX_OUTLOOKS:
            resources.outlooks.clear()
        resources.outlooks[view.batch.id] = known
    return known
