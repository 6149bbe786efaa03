"""Responses made in the background: begun, looked at, followed (decision 0145)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import orjson
from fastapi import Request
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response, StreamingResponse

from api.chat_request import check_chat
from api.errors import ApiError, EngineUnavailable
from api.json_output import dump
from api.numbers import check_lengths, check_numbers
from api.responses.events import event_bytes, retold
from api.responses.items import messages_of
from api.responses.request import chat_body, renamed
from api.responses.resource import TERMINAL, ResponseDraft
from batch import background
from batch.files import FileStore
from batch.intake.arrivals import StoredArrivals, discard
from batch.queue import DISPATCH, Queue
from engine_adapter.client.base import CHAT_PATH
from engine_adapter.client.estimate import answer_tokens
from engine_adapter.client.long_answers import BRIEF_BYTES, aside
from engine_adapter.client.rid import new_rid
from gateway.auth.keys import KeyRing
from gateway.auth.principal import Principal
from gateway.followers import POLL_INTERVAL_S, Followers
from gateway.http.parsing import let_go, let_go_of
from gateway.prompts.admission import Admission
from gateway.prompts.forms import JSON
from gateway.prompts.serving import parts_of
from gateway.responses.form import now
from gateway.responses.shelf import Context, ResponseStore
from service.clock import Clock
from store.repositories import response as responses
from store.session import Database


async def begin(
    request: Request, admission: Admission, body: dict[str, Any], shelf: ResponseStore
) -> Response:
    """Store a response that is to be made, and ask for it; or follow it, if that is wanted.

    Nothing of an engine is needed but that one serves the model: it may be away for a while.
    """
    parts, state, principal = parts_of(request), request.app.state, admission.principal
    if body.get("stream"):
        cast(Followers[Seen | None], state.followers).check(principal.project_id)
    context = await shelf.context(body, is_brief=admission.is_brief)
    model = parts.engines.resolve(body["model"])
    sizes = parts.engines.sizes_of(model)

    def asked() -> tuple[background.Line, int]:
        items = [*context.earlier, *context.own]
        chat = chat_body(body, messages_of(items, body.get("instructions")))
        check_chat(chat)
        check_numbers(chat, sizes)
        check_lengths(chat, sizes)
        line = background.Line.of(body, items, model)
        tokens = line.num_tokens + answer_tokens(CHAT_PATH, chat)
        items.clear()
        let_go(context.earlier)
        let_go_of(chat)
        return line, tokens

    try:
        line, tokens = await parts.parsing.run(
            principal.project_id, asked, is_large=context.is_large
        )
        with suppress(EngineUnavailable):
            parts.engines.pick(model, CHAT_PATH)
    except ApiError as error:
        raise renamed(error, body) from None
    # Not settled: what the row will use is counted with the batches'.
    await admission.reserve(tokens)
    draft = ResponseDraft(body, new_rid(), now(parts.clock))
    made = draft.at("queued")
    await _store(request, principal, line, context, shelf, made)
    admission.keep()
    await cast(Queue, state.queue).wake(DISPATCH)
    if body.get("stream"):
        return followed(request, principal, draft.id, first=0, headers=admission.headers)
    return Response(dump(made), media_type=JSON, headers=admission.headers)


async def _store(
    request: Request,
    principal: Principal,
    line: background.Line,
    context: Context,
    shelf: ResponseStore,
    made: dict[str, Any],
) -> None:
    state, settings = request.app.state, parts_of(request).settings
    database, file_store = cast(Database, state.database), cast(FileStore, state.file_store)
    known = StoredArrivals(database)
    file = await background.put_line(line, file_store, known)
    try:
        async with database.unit_of_work() as session:
            await background.begin(
                session,
                line,
                file,
                response_id=made["id"],
                project_id=principal.project_id,
                key_id=principal.key_id,
                enqueued_token_limit=settings.batch_enqueued_tokens,
            )
            await shelf.add(session, context, made)
    except ApiError:
        await discard(file_store, known, file.id)
        raise


@dataclass(frozen=True)
class Seen:
    """A response as it is now."""

    body: bytes
    is_over: bool


async def read_seen(session: AsyncSession, project_id: str, response_id: str) -> Seen | None:
    """A stored response; one that is being made has the status of its row."""
    stored = await responses.get(session, project_id, response_id)
    if stored is None:
        return None
    # Cheap for the usual one, which has ended: only the others are read anew.
    is_long = len(stored.body) > BRIEF_BYTES
    if await aside(partial(_status_of, stored.body), is_long=is_long) in TERMINAL:
        return Seen(stored.body, is_over=True)
    begun = await responses.has_begun(session, project_id, response_id)
    status = "in_progress" if begun else "queued"
    told = await aside(partial(_told_as, stored.body, status), is_long=is_long)
    return Seen(told, is_over=False)


def _status_of(body: bytes) -> str:
    return str(orjson.loads(body)["status"])


def _told_as(body: bytes, status: str) -> bytes:
    return dump({**orjson.loads(body), "status": status})


def _events_from(body: bytes, first: int) -> tuple[bytes, int]:
    """The events of a response from a number on, and the number after them."""
    events = [e for e in retold(orjson.loads(body)) if e["sequence_number"] >= first]
    return event_bytes(events), events[-1]["sequence_number"] + 1 if events else first


def followed(
    request: Request,
    principal: Principal,
    response_id: str,
    *,
    first: int,
    headers: dict[str, str] | None = None,
) -> StreamingResponse:
    """The events of a response from a number on, as they happen, until its end.

    The caller has asked `Followers.check`.
    """
    parts = parts_of(request)
    followers = cast(Followers[Seen | None], request.app.state.followers)
    follow = partial(_follow, followers, parts.clock, parts.keys, principal, response_id)
    events = follow(first=first, keep_alive_s=parts.settings.keep_alive_s)
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


async def _follow(
    followers: Followers[Seen | None],
    clock: Clock,
    keys: KeyRing,
    principal: Principal,
    response_id: str,
    *,
    first: int,
    keep_alive_s: float,
) -> AsyncIterator[bytes]:
    key_ended = False

    def end() -> None:
        nonlocal key_ended
        key_ended = True

    read = partial(read_seen, project_id=principal.project_id, response_id=response_id)
    said_at_s, known = clock.monotonic(), -1
    with (
        keys.watched(principal, end),
        followers.following(principal.project_id, response_id, read) as followed,
    ):
        while not key_ended:
            events, is_over = b"", False
            if followed.version != known:
                known = followed.version
                seen = await followed.seen()
                if seen is None:
                    return  # deleted
                is_over = seen.is_over
                events, first = await aside(
                    partial(_events_from, seen.body, first),
                    is_long=len(seen.body) > BRIEF_BYTES,
                )
            if events:
                said_at_s = clock.monotonic()
                yield events
            elif clock.monotonic() >= said_at_s + keep_alive_s:
                said_at_s = clock.monotonic()
                yield b": keep-alive\n\n"
            if is_over:
                return
            await clock.sleep(POLL_INTERVAL_S)
