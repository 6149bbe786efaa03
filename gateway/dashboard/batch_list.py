"""The list of batches: a page of those that a filter matches, with heads that sort it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from gateway.batch_shapes import extensions
from gateway.dashboard.batch_view import BatchView
from gateway.dashboard.fragments import Fragments
from gateway.dashboard.resources import Resources
from gateway.dashboard.templating import render
from store.repositories import batch_browser, overview
from store.repositories.batch_browser import BatchFilter

PAGE_ROWS: Final = 25
MAX_SEARCH: Final = 512


@dataclass(frozen=True)
class BatchesPage:
    """The list of an organisation's batches."""

    organization_id: str
    wanted: BatchFilter
    after: str | None = None

    @property
    def fresh_s(self) -> float:
        """See `LivingPage`: a search looks at every batch, and may be older."""
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
