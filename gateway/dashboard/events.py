"""One event stream per page: what changed since the last look, at most once a second."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from html import escape
from typing import Final

from fastapi import APIRouter, Request
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import StreamingResponse

from api.errors import NotFound, RateLimited
from gateway.dashboard.access import Admin, AdminDep, ResourcesDep, find_admin
from gateway.dashboard.batch_list import MAX_SEARCH, BatchesPage
from gateway.dashboard.batch_page import BatchPage
from gateway.dashboard.engine_list import EnginesPage
from gateway.dashboard.fragments import Fragments, LivingPage, SharedReadings
from gateway.dashboard.isolation import IsolationPage
from gateway.dashboard.overview import OverviewPage, span_of
from gateway.dashboard.resources import Resources
from gateway.dashboard.scheduler import SchedulerPage
from gateway.dashboard.webhooks import WebhooksPage
from store.repositories.batch_browser import BatchFilter

router = APIRouter()

FILTERS = tuple(one.name for one in fields(BatchFilter))
TICK_S = 1.0
_LINE_END: Final = re.compile(r"\r\n|\r|\n")  # as browsers split a stream
SIGN_OF_LIFE_S = 15.0
MAX_STREAMS = 64
"""Of one key at once: each is a page that somebody looks at, and may cost a query a second."""
RECHECK_S = 3.0
"""How often a stream looks whether its session is still good."""

TROUBLE = (
    '<p id="trouble" class="trouble" role="alert">The database does not answer. Trying again.</p>'
)
NO_TROUBLE = '<p id="trouble" class="trouble" hidden></p>'


@dataclass
class Differ:
    """Remembers what a watcher has and yields what it lacks."""

    _sent: dict[str, str] = field(default_factory=dict)
    _order: tuple[str, ...] | None = None
    _statuses: dict[str, str] = field(default_factory=dict)

    def changes(self, fragments: Fragments) -> Iterator[str]:
        """Partials to swap in; the whole list only where its items or their order changed."""
        order = tuple(fragments.listed)
        if fragments.list_id and order != self._order:
            yield partial(fragments.list_id, fragments.list_html)
            self._sent.update(fragments.listed)
            self._order = order
        for element_id, html in (*fragments.whole.items(), *fragments.listed.items()):
            if self._sent.get(element_id) != html:
                self._sent[element_id] = html
                yield partial(element_id, html)
        if self._statuses:
            news = [
                f"{name}: {status}."
                for name, status in fragments.statuses.items()
                if self._statuses.get(name, status) != status
            ]
            if news:
                said = escape(" ".join(news))
                yield partial("announcer", said, swap="textContent")
        self._statuses = {**self._statuses, **fragments.statuses}


def partial(element_id: str, html: str, *, swap: str = "outerMorph") -> str:
    """An instruction to htmx: put this in place of (or into) that element."""
    return f'<hx-partial hx-target="#{element_id}" hx-swap="{swap}">{html}</hx-partial>'


def message(data: str, event: str | None = None) -> bytes:
    name = f"event: {event}\n" if event else ""
    body = "".join(f"data: {line}\n" for line in _LINE_END.split(data))
    return f"{name}{body}\n".encode()


async def watch(
    resources: Resources, readings: SharedReadings, living: LivingPage, admin: Admin
) -> AsyncGenerator[bytes, None]:
    """Changes of a page until the watcher leaves, the session ends or the object is gone."""
    clock = resources.clock
    differ = Differ()
    in_trouble = False
    quiet_since_s = checked_at_s = clock.monotonic()
    yield b": hello\n\n"
    while not getattr(resources.state, "stopping", False):
        parts: list[str] = []
        try:
            if clock.monotonic() - checked_at_s >= RECHECK_S:
                checked_at_s = clock.monotonic()
                good = admin.session.good_at(clock.now())
                if not good or await find_admin(resources, admin.session) is None:
                    yield message("over", event="session-over")
                    return
            parts = list(differ.changes(await readings.read(living)))
            if in_trouble:
                parts.append(partial("trouble", NO_TROUBLE))
                in_trouble = False
        except NotFound:
            return
        except (SQLAlchemyError, OSError):
            # A database that restarts must not end the stream: the page says so and goes on.
            if not in_trouble:
                parts.append(partial("trouble", TROUBLE))
                in_trouble = True
        now_s = clock.monotonic()
        if parts:
            quiet_since_s = now_s
            yield message("".join(parts))
        elif now_s - quiet_since_s >= SIGN_OF_LIFE_S:
            quiet_since_s = now_s
            yield b": still here\n\n"
        await clock.sleep(TICK_S)


def living_page(admin: Admin, query: Mapping[str, str]) -> LivingPage:
    """The page that a stream's address names.

    Raises:
        NotFound: There is none of that name.
    """
    organization_id = admin.organization_id
    span, _ = span_of(query.get("window", ""))
    makers: dict[str, Callable[[], LivingPage]] = {
        "overview": lambda: OverviewPage(organization_id, admin.key.project_id, span),
        "scheduler": SchedulerPage,
        "isolation": lambda: IsolationPage(span),
        "batches": lambda: BatchesPage(
            organization_id,
            BatchFilter(**{name: query.get(name, "")[:MAX_SEARCH] for name in FILTERS}),
            query.get("after", "")[:64] or None,
        ),
        "batch": lambda: BatchPage(organization_id, query.get("batch_id", "")[:64]),
        "engines": EnginesPage,
        "webhooks": lambda: WebhooksPage(admin.key.project_id),
    }
    make = makers.get(query.get("view", ""))
    if make is None:
        raise NotFound("There is no such stream.")
    return make()


@router.get("/events")
async def events(request: Request, resources: ResourcesDep, admin: AdminDep) -> StreamingResponse:
    """The stream of one page."""
    chosen = living_page(admin, request.query_params)
    readings: SharedReadings = request.app.state.readings
    if readings.num_streams[admin.key.id] >= MAX_STREAMS:
        raise RateLimited(f"This key has {MAX_STREAMS} pages open, which is the limit. Close one.")
    # Read before the headers leave, so that an unknown batch is a 404.
    await readings.read(chosen)
    return StreamingResponse(
        readings.counted(admin.key.id, watch(resources, readings, chosen, admin)),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )
