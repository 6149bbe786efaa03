"""The living parts of each page: read once, rendered once, shared by the page and every watcher.

A fragment is an element with an id. Fragments hold nothing of a session (no tokens), so one
reading serves all who look at the same view.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, Protocol
from urllib.parse import urlencode

from sqlalchemy.ext.asyncio import AsyncSession

from api.errors import NotFound
from batch.steer import MAX_PRIORITY, MIN_PRIORITY
from engine_adapter.scheduling.policies.settings import Level
from gateway.batch_shapes import extensions
from gateway.dashboard import harvested
from gateway.dashboard.engines import (
    day_chart,
    memory_chart,
    read_engines,
    tokens_chart,
    what_draining_means,
)
from gateway.dashboard.resources import Resources
from gateway.dashboard.row_errors import MAX_GROUPED, RetryOutlook, outlook
from gateway.dashboard.templating import render
from gateway.dashboard.views import BatchView, EventView, FailedRowView, progress_chart
from gateway.history.reading import CHART_SPANS
from gateway.history.reading import read as read_history
from store.repositories import batch_browser, event, overview, row_browser
from store.repositories import engine as engines
from store.repositories.batch_browser import BatchFilter
from store.repositories.progress import retry_of

PAGE_ROWS = 25
MAX_SEARCH = 512
MAX_EVENTS = 50
MAX_FAILED_ROWS = 20
MAX_CHART_POINTS = 120
MAX_OUTLOOKS = 64


@dataclass(frozen=True)
class Fragments:
    """What a view shows at one instant.

    Attributes:
        whole: Element id -> HTML of the parts that change as one.
        listed: Element id -> HTML of the items of a list, in order.
        list_id: The element that holds the list, or empty.
        list_html: That element with all its items.
        facts: What the page says once, outside of living parts (title, whether a next page is).
        statuses: Name -> status, for what is announced to a screen reader.
    """

    whole: Mapping[str, str]
    listed: Mapping[str, str] = field(default_factory=dict)
    list_id: str = ""
    list_html: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)
    statuses: Mapping[str, str] = field(default_factory=dict)


class View(Protocol):
    """What a page shows; equal views are read once for all."""

    @property
    def fresh_s(self) -> float:
        """How long a reading serves."""
        ...

    async def read(self, resources: Resources) -> Fragments:
        """Read what the view shows now, and render each of its fragments."""
        ...


@dataclass(frozen=True)
class BatchesView:
    """The list of an organisation's batches."""

    organization_id: str
    wanted: BatchFilter
    after: str | None = None

    @property
    def fresh_s(self) -> float:
        """See `View`: a search looks at every batch, and may be older."""
        return 4.9 if self.wanted.search else 0.9

    async def read(self, resources: Resources) -> Fragments:
        async with resources.readings.snapshot() as work:
            rows, has_more = await batch_browser.page(
                work, self.organization_id, self.wanted, after=self.after, limit=PAGE_ROWS
            )
            totals = await overview.totals(work, self.organization_id)
            predicted = await extensions(work, resources.engine_pool, [row.batch for row in rows])
        views = [BatchView(row, one) for row, one in zip(rows, predicted, strict=True)]
        items = {f"row-{v.batch.id}": render("fragments/batch_row.html", b=v) for v in views}
        summary = render(
            "fragments/batches_summary.html",
            totals=totals,
            group=self.wanted.group,
            rest=urlencode({k: v for k, v in self.wanted.words().items() if k != "group"}),
        )
        return Fragments(
            whole={"batches-summary": summary},
            listed=items,
            list_id="batches-list",
            list_html=render(
                "fragments/batches_list.html",
                items=items,
                search=self.wanted.search,
                filtered=bool(self.wanted.words()),
                heads=_heads(self.wanted),
            ),
            facts={"has_more": has_more, "last_id": views[-1].batch.id if views else None},
            statuses={v.source.input_name: v.label for v in views},
        )


@dataclass(frozen=True)
class Head:
    """A column's head that sorts by it.

    Attributes:
        query: What the address says for the order that a click gives.
        sorted: For `aria-sort`; empty where the list is in another order.
    """

    name: str
    query: str
    sorted: str


SORTS: Final = {
    "Status": ("status", "status_down"),
    "Progress": ("largest", "smallest"),
    "Time": ("due", "due_last"),
    "Created": ("newest", "oldest"),
}
"""Columns, each with the order of the first click on its head and of the second."""


def _heads(wanted: BatchFilter) -> Mapping[str, Head]:
    found = {}
    for name, (first, second) in SORTS.items():
        turned = second if wanted.order == first else first
        words = {**wanted.words(), "order": turned}
        if turned == batch_browser.NEWEST:
            del words["order"]
        downwards = batch_browser.ORDERS[wanted.order].downwards
        state = (
            ("descending" if downwards else "ascending") if wanted.order in (first, second) else ""
        )
        found[name] = Head(name, urlencode(words), state)
    return found


@dataclass(frozen=True)
class OneBatchView:
    """One batch's page, for operators of its organisation."""

    organization_id: str
    batch_id: str

    @property
    def fresh_s(self) -> float:
        return 0.9

    async def read(self, resources: Resources) -> Fragments:
        """See `View`.

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


@dataclass(frozen=True)
class EnginesView:
    @property
    def fresh_s(self) -> float:
        """See `View`: slower, as each reading costs every engine two requests."""
        return 1.9

    async def read(self, resources: Resources) -> Fragments:
        readings = await read_engines(resources.engines)
        async with resources.database.unit_of_work() as work:
            known = {one.url: one for one in await engines.states(work)}
            day = await read_history(work, CHART_SPANS["24h"], ["engine"])
        called = {url: engines.called(url, one.name) for url, one in known.items()}
        at_s = resources.clock.now().timestamp()
        bounds = CHART_SPANS["24h"].bounds(at_s)
        for reading in readings:
            resources.history.add(reading, at_s)
        items = {
            f"engine-{number}": render(
                "fragments/engine.html",
                number=number,
                e=reading,
                chart=resources.history.chart(reading.url),
                known=known.get(reading.url),
                called=called.get(reading.url) or engines.called(reading.url, None),
                day=day_chart(day, reading.url, bounds),
            )
            for number, reading in enumerate(readings)
        }
        charts = render(
            "fragments/engines_work.html",
            tokens=tokens_chart(day, bounds),
            memory=memory_chart(day, bounds),
        )
        return Fragments(
            whole={"engines-work": charts},
            listed=items,
            list_id="engines-list",
            list_html=render("fragments/engines_list.html", items=items),
            facts={
                "names": called,
                "levels": list(Level),
                "levelled": {
                    r.url: called[r.url]
                    for r in readings
                    if r.url in known and r.facts and r.facts.reported("level")
                },
                "drains": [
                    (number, r.url, what_draining_means(resources.engine_pool.members, r.url))
                    for number, r in enumerate(readings)
                    if r.url in known
                ],
            },
            statuses={called.get(r.url, r.url): r.state[0] for r in readings},
        )


@dataclass
class SharedReadings:
    """The last reading of each view that somebody looks at.

    Invariant: however many watch, a view is read at most once per `fresh_s`.

    Attributes:
        resources: What views are read from.
        num_streams: How many streams each key has open.
    """

    resources: Resources
    _last: dict[View, tuple[float, Fragments]] = field(default_factory=dict)
    _locks: dict[View, asyncio.Lock] = field(default_factory=dict)
    num_streams: Counter[str] = field(default_factory=Counter)

    async def counted(
        self, key_id: str, stream: AsyncGenerator[bytes, None]
    ) -> AsyncIterator[bytes]:
        """A key's stream, which counts among its own while it lasts."""
        self.num_streams[key_id] += 1
        try:
            async with aclosing(stream):
                async for part in stream:
                    yield part
        finally:
            self.num_streams[key_id] -= 1
            if not self.num_streams[key_id]:
                del self.num_streams[key_id]

    async def read(self, view: View, *, anew: bool = False) -> Fragments:
        """What the view shows now, or showed a moment ago.

        Args:
            view: What to read.
            anew: Whoever has just done something must see it: do not use an older reading.
        """
        async with self._locks.setdefault(view, asyncio.Lock()):
            clock = self.resources.clock
            known = self._last.get(view)
            is_fresh = known is not None and clock.monotonic() - known[0] < view.fresh_s
            if known is not None and is_fresh and not anew:
                return known[1]
            began_s = clock.monotonic()
            fragments = await view.read(self.resources)
            self._last[view] = (began_s, fragments)
            self._forget_stale(began_s)
            return fragments

    def views(self) -> list[View]:
        """The views that are remembered."""
        return list(self._last)

    def _forget_stale(self, now_s: float) -> None:
        """Views that nobody has read for a while are dropped, so that none is kept for ever."""
        for view in [v for v, (at_s, _) in self._last.items() if now_s - at_s > 30]:
            lock = self._locks.get(view)
            if lock is None or not lock.locked():
                self._last.pop(view, None)
                self._locks.pop(view, None)
