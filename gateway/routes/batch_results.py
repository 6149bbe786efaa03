"""Results of a batch while it runs: `/batches/{batch_id}/results`. Ours, not OpenAI's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Final, cast

from fastapi import APIRouter, Header, Query, Request
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.datastructures import State
from starlette.responses import Response, StreamingResponse

from api.batch_errors import BatchNotFound
from api.batch_shapes import may_be_id
from api.errors import InvalidRequest
from api.json_output import dump
from batch.finish import result_feed
from batch.finish.result_feed import MAX_PAGE_LINES, ResultKind, ResultPage
from gateway.auth.keys import KeyRing
from gateway.auth.principal import Principal
from gateway.dependencies import ClockDep, DatabaseDep, PrincipalDep
from gateway.followers import Followers
from service.clock import Clock

router = APIRouter(tags=["batches"])

KEEP_ALIVE_S: Final = 15.0
MAX_OFFSET: Final = 2**31 - 1

Offset = Annotated[int, Query(ge=0, le=MAX_OFFSET)]
Kind = Annotated[ResultKind | None, Query()]


@router.get("/batches/{batch_id}/results", response_class=Response)
async def read_results(
    batch_id: str,
    principal: PrincipalDep,
    database: DatabaseDep,
    offset: Offset = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE_LINES)] = 100,
    kind: Kind = None,
) -> Response:
    """Result lines after number `offset`, as JSONL; `x-next-offset` is where to go on."""
    _check_id(batch_id)
    async with database.unit_of_work() as session:
        page = await result_feed.read_page(
            session, principal.project_id, batch_id, offset=offset, limit=limit, kind=kind
        )
    return Response(
        b"".join(one.line + b"\n" for one in page.lines),
        media_type="application/jsonl",
        headers={
            "x-next-offset": str(page.next_offset),
            "x-complete": "true" if page.complete else "false",
            "x-batch-status": page.status,
            "cache-control": "no-store",
        },
    )


@router.get("/batches/{batch_id}/results/stream", response_class=StreamingResponse)
async def stream_results(  # noqa: PLR0913
    batch_id: str,
    request: Request,
    principal: PrincipalDep,
    database: DatabaseDep,
    clock: ClockDep,
    offset: Offset = 0,
    kind: Kind = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> StreamingResponse:
    """Result lines as server-sent events while they come, to the end of the batch."""
    _check_id(batch_id)
    cast(Followers[None], request.app.state.feeds).check(principal.project_id)
    if last_event_id is not None:
        if not last_event_id.isascii() or not last_event_id.isdigit() or len(last_event_id) > 9:
            raise InvalidRequest("last-event-id must be the id of an event of this feed.")
        offset = max(offset, int(last_event_id))
    async with database.unit_of_work() as session:
        # Before the first byte: what is wrong must be an error, not a cut-off stream.
        await result_feed.read_page(
            session, principal.project_id, batch_id, offset=offset, limit=1, kind=kind
        )
    state = request.app.state
    ended = asyncio.Event()

    def feed(version: Callable[[], int | None]) -> AsyncIterator[bytes]:
        pages = result_feed.follow(
            database,
            clock,
            principal.project_id,
            batch_id,
            offset=offset,
            kind=kind,
            version=version,
        )
        return _events(pages, clock)

    return StreamingResponse(
        _followed(state, principal, batch_id, ended, feed),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


async def _followed(
    state: State,
    principal: Principal,
    batch_id: str,
    ended: asyncio.Event,
    feed: Callable[[Callable[[], int | None]], AsyncIterator[bytes]],
) -> AsyncIterator[bytes]:
    """The feed ends without `done` when its key does: asking again is then a 401."""
    keys, feeds = cast(KeyRing, state.keys), cast(Followers[None], state.feeds)

    def version() -> int | None:
        is_over = ended.is_set() or getattr(state, "stopping", False)
        return None if is_over else followed.version

    with (
        keys.watched(principal, ended.set),
        feeds.following(principal.project_id, batch_id, _nothing) as followed,
    ):
        async for event in feed(version):
            yield event


async def _nothing(_: AsyncSession) -> None:
    """Each feed reads its own lines."""


async def _events(pages: AsyncIterator[ResultPage], clock: Clock) -> AsyncIterator[bytes]:
    yield b": results\n\n"
    spoken_s = clock.monotonic()
    async for page in pages:
        if page.lines:
            spoken_s = clock.monotonic()
            yield b"".join(
                b"id: %d\nevent: %s\ndata: %s\n\n"
                % (one.seq, b"output" if one.succeeded else b"error", one.line)
                for one in page.lines
            )
        elif clock.monotonic() - spoken_s >= KEEP_ALIVE_S:
            spoken_s = clock.monotonic()
            yield b": keep-alive\n\n"
        if page.complete:
            end = {"status": page.status, "next_offset": page.next_offset}
            yield b"id: %d\nevent: done\ndata: %s\n\n" % (page.next_offset, dump(end))


def _check_id(batch_id: str) -> None:
    if not may_be_id(batch_id):
        raise BatchNotFound(batch_id[:64])
