"""A response made in the background: a batch of one line that nobody sees (decision 0145).

    begin ──► queued ──► in_progress ──► completed | incomplete | failed
                 └───────────┴─────────► cancelled

The line lies in the file store and its row in the rows of batches, so whatever dies, the response
is made once. As soon as possible, its row goes before all batches of its project; in a window of
its own it is wanted by the window's end, as theirs are. The turns of a program (`continuation_id`)
are wanted when its first one was, so they go before programs that began later. The answer becomes
the stored response where another batch would get its files. The input file is hidden from its
first moment on: a live batch keeps it, and the next collection after its end removes it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from sqlalchemy.ext.asyncio import AsyncSession

from api import not_held
from api.batch_errors import TooManyResponses
from api.errors import InvalidRequest, RateLimited
from api.json_output import dump
from api.responses.items import Item, item_id, packed
from api.responses.request import completion_window_of
from api.responses.resource import RESPONSE_PREFIX
from batch.files import FileStore
from batch.intake import quota
from batch.intake.arrivals import Arrivals, discard
from batch.intake.completion_window import seconds_of
from batch.states import BatchStatus
from batch.steer import MAX_PRIORITY
from batch.transition import move
from batch.webhooks import events
from engine_adapter.client.base import RESPONSES_PATH
from engine_adapter.client.estimate import prompt_tokens
from store.models import Batch, File, StoredResponse
from store.repositories import arrival as arrivals
from store.repositories import batch as batches
from store.repositories import conversation as conversations
from store.repositories import file as files
from store.repositories import response as responses
from store.repositories import result as results
from store.repositories import row as rows
from store.repositories import statements
from store.repositories import webhook_delivery as deliveries
from store.types import new_id

PRIORITY: Final = MAX_PRIORITY + 1
"""Above any batch: the class between flex and batch, of responses as soon as possible."""

SOONEST: Final = "1h"
"""A response that is not made by then has failed, unless its creation allows for more."""

MAX_LIVE: Final = 1000
"""Background responses that a project may have unfinished."""

_OWN: Final = (
    "previous_response_id",
    "conversation",
    "background",
    "background_options",
    "stream",
    "stream_options",
)
"""What a row does not have: its input is all of its context."""


@dataclass(frozen=True)
class Line:
    """What is to be made, as a line of a batch file.

    Attributes:
        model: The model it asks for.
        data: The line.
        num_tokens: About how many tokens its prompt has.
        completion_window: How long it may take.
        continuation_id: The program that it is a turn of, if any.
    """

    model: str
    data: bytes
    num_tokens: int
    completion_window: str
    continuation_id: str | None = None

    @classmethod
    def of(cls, body: Mapping[str, Any], context: Sequence[Item], model: str) -> Line:
        """The line of a checked body and everything that it goes on from, itself included.

        `model` is what the body's name of a model stands for.
        """
        own = {name: value for name, value in body.items() if name not in _OWN}
        made = {**own, "input": list(context)}
        line = {"custom_id": "response", "method": "POST", "url": RESPONSES_PATH, "body": made}
        completion_window = completion_window_of(body)
        completion_window = SOONEST if completion_window == "soonest" else completion_window
        options: Mapping[str, str] = body.get("background_options") or {}
        return cls(
            model,
            dump(line),
            prompt_tokens(RESPONSES_PATH, made),
            completion_window,
            options.get("continuation_id"),
        )


async def put_line(line: Line, file_store: FileStore, known: Arrivals) -> File:
    """Store a line's bytes; the file that `begin` adds."""
    file_id = new_id("file-")
    await known.announce(file_id)
    try:
        stored = await file_store.put(file_id, _once(line.data))
    except BaseException:
        await discard(file_store, known, file_id)
        raise
    return File(
        id=file_id,
        purpose="batch",
        filename="response.jsonl",
        size_bytes=stored.size_bytes,
        sha256=stored.sha256,
        storage_key=file_id,
    )


async def begin(
    session: AsyncSession,
    line: Line,
    file: File,
    *,
    response_id: str,
    project_id: str,
    key_id: str | None,
    enqueued_token_limit: int | None,
) -> None:
    """Make the row of a response, which the caller stores; then dispatchers are to be woken.

    Raises:
        TooManyResponses: The project has as many unfinished ones as it may.
        RateLimited: Its quota of enqueued tokens is used up.
    """
    if await responses.num_live(session, project_id) >= MAX_LIVE:
        raise TooManyResponses(
            f"This project has {MAX_LIVE:,} background responses that have not ended."
        )
    why = await quota.why_full(
        session, project_id, line.model, line.num_tokens, default_limit=enqueued_token_limit
    )
    if why is not None:
        raise RateLimited(why, code=quota.CODE)
    file.project_id = project_id
    file.deleted_at = await statements.now(session)
    await files.add(session, file)
    await arrivals.settle(session, file.id)
    batch = await batches.add(
        session,
        project_id=project_id,
        key_id=key_id,
        endpoint=RESPONSES_PATH,
        completion_window=line.completion_window,
        completion_window_s=seconds_of(line.completion_window),
        input_file_id=file.id,
        metadata=None,
        output_expires_after_s=None,
        priority=PRIORITY if line.completion_window == SOONEST else 0,
        response_id=response_id,
        continuation_id=line.continuation_id,
    )
    if line.completion_window == SOONEST:
        batch.wanted_at = batch.created_at
    if line.continuation_id is not None:
        first_at = await responses.program_wanted_at(session, batch, line.model)
        batch.wanted_at = first_at or batch.wanted_at
    await rows.ingest(session, batch.id, _row(line))
    values = {"num_total": 1, "model": line.model}
    await move(session, batch.id, BatchStatus.IN_PROGRESS, values=values, detail={"num_rows": 1})


async def stop(session: AsyncSession, project_id: str, response_id: str) -> str | None:
    """Make the response no further; its batch, whose finalization is to be asked for.

    None where it was not made in the background, or has ended.
    """
    batch_id = await responses.batch_of(session, project_id, response_id)
    if batch_id is None or await move(session, batch_id, BatchStatus.CANCELLING) is None:
        return None
    return batch_id


async def cancel(session: AsyncSession, stored: StoredResponse) -> str | None:
    """Cancel a response; its batch, whose finalization is to be asked for, unless it was before.

    Raises:
        InvalidRequest: It was not made in the background, or has ended.
    """
    body = orjson.loads(stored.body)
    if not body["background"]:
        raise InvalidRequest("Only responses that were created with 'background' can be cancelled.")
    batch_id = await stop(session, stored.project_id, stored.id)
    if batch_id is None:
        await session.refresh(stored)
        status = orjson.loads(stored.body)["status"]
        if status == "cancelled":
            return None
        ended = "completed" if status in ("queued", "in_progress") else status
        raise InvalidRequest(f"A response that is {ended} cannot be cancelled.")
    stored.body = dump({**body, "status": "cancelled"})
    await session.flush()
    return batch_id


async def deliver(session: AsyncSession, batch: Batch, target: BatchStatus) -> bool:
    """End the batch of a response, and write what became of its row into the response.

    Returns:
        Whether it could be moved to `target`; else nothing may stay of the transaction.
    """
    found = await results.after(
        session, batch.id, seq=0, succeeded=None, max_lines=1, max_bytes=2**31 - 1
    )
    if await move(session, batch.id, target) is None:
        return False
    await results.forget(session, batch.id)
    stored = await responses.get(session, batch.project_id, str(batch.response_id), lock=True)
    if stored is None:
        return True
    if target is BatchStatus.CANCELLED:
        await _tell(session, batch, target, "cancelled")
        return True
    queued, line = orjson.loads(stored.body), orjson.loads(found[0].line)
    body = queued | _ending(line, stored.id, queued.get("warnings", ()))
    stored.body = dump(body)
    stored.item_ids = [*stored.item_ids, *(item["id"] for item in body["output"])]
    await session.flush()
    await _tell(session, batch, target, body["status"])
    if body["conversation"] is not None and body["status"] != "failed":
        talk = await conversations.get(
            session, batch.project_id, body["conversation"]["id"], lock=True
        )
        if talk is not None:  # else it was deleted meanwhile
            own = orjson.loads(stored.input_items)
            lifetime = stored.expires_at - stored.created_at
            kept = packed([*own, *body["output"]])
            await conversations.append(session, talk, kept, lifetime)
    return True


async def _tell(session: AsyncSession, batch: Batch, target: BatchStatus, status: str) -> None:
    """Write the webhook deliveries of a response's end."""
    event_ids = {batch.id: events.new_event_id()}
    await deliveries.publish(session, event_ids, status=target, event_type=f"response.{status}")


def _ending(
    line: Mapping[str, Any], response_id: str, warnings: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    """What the row's line says of its response, which has warnings from its creation."""
    answer = line["response"]
    if answer is None:
        error = {"code": "server_error", "message": line["error"]["message"]}
        return {"status": "failed", "error": error}
    made = answer["body"]
    if answer["status_code"] >= 400:
        code = "invalid_prompt" if answer["status_code"] < 500 else "server_error"
        return {"status": "failed", "error": {"code": code, "message": made["error"]["message"]}}
    own = response_id.removeprefix(RESPONSE_PREFIX)  # the call had an id of its own
    for place, item in enumerate(made["output"]):
        item["id"] = item_id(item["type"], own, f"o{place}")
    names = ("status", "output", "usage", "incomplete_details", "completed_at")
    warned = [*warnings, *not_held.warnings(answer.get("not_held", ()))]
    return {name: made[name] for name in names} | ({"warnings": warned} if warned else {})


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _row(line: Line) -> AsyncIterator[rows.NewRow]:
    yield rows.NewRow(1, "response", 0, len(line.data), num_tokens=line.num_tokens)
