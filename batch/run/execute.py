"""One row at an engine: its line in, its end or its next attempt out.

Nothing is written here: the outcome goes to the result writer, which writes it under the lease.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any, Final

from opentelemetry.trace import SpanKind

from api.errors import (
    ApiError,
    EngineNotReached,
    EngineUnavailable,
    InternalError,
    Overloaded,
    error_body,
)
from batch.finish.output import failure_line, http_line
from batch.intake.line import read_body
from batch.run import quarantine, retry
from batch.run.retry import Again
from batch.states import RowStatus
from engine_adapter.client.base import (
    CHAT_PATH,
    COMPLETIONS_PATH,
    EMBEDDINGS_PATH,
    RESPONSES_PATH,
    EngineCall,
    EngineClient,
    EngineReply,
    Served,
    TokenUsage,
)
from engine_adapter.client.choices import complete
from engine_adapter.client.embedding import embed
from engine_adapter.client.request_class import RequestClass
from engine_adapter.client.responding import respond
from service import log_lines, tracing
from store.repositories.batch import LiveBatch
from store.repositories.result import NewResult
from store.repositories.row import ClaimedRow, PutBack

logger = logging.getLogger(__name__)

_ASK: Final = {
    CHAT_PATH: complete,
    COMPLETIONS_PATH: complete,
    EMBEDDINGS_PATH: embed,
    RESPONSES_PATH: respond,
}
"""By which calls engines are asked for each endpoint."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one attempt.

    Attributes:
        write: What is written of the row: its end, or that it waits for another attempt.
        engine_lost: The engine did not answer at all.
        given_up: No engine survived it: its like runs nowhere.
        refused: The engine turned the call away because it is full (429, 503).
    """

    write: NewResult | PutBack
    engine_lost: bool = False
    given_up: bool = False
    refused: bool = False


@dataclass(frozen=True, slots=True)
class AttemptLimits:
    """Bounds of one attempt and of their number."""

    max_attempts: int
    timeout_s: float


def body_of(raw_line: bytes, model: str | None) -> dict[str, Any]:
    """The line's body, which may name its model by an alias."""
    body = read_body(raw_line)
    return body if model is None else {**body, "model": model}


async def execute(  # noqa: PLR0913
    row: ClaimedRow,
    raw_line: bytes,
    batch: LiveBatch,
    engine: EngineClient,
    *,
    rid: str,
    limits: AttemptLimits,
    jitter: float,
    served: Served,
) -> Outcome:
    """Send the row to the engine and judge the answer.

    Args:
        row: A leased row.
        raw_line: Its line of the input file.
        batch: Its batch.
        engine: Where to run it.
        rid: Engine request id of this attempt.
        limits: Bounds of the attempt.
        jitter: Uniform in [0, 1), for a pause before the next attempt.
        served: Gets what the engine served, also if the row is stopped.

    Raises:
        asyncio.CancelledError: The row is to stop; the engine request is aborted by then.
    """
    call = EngineCall(
        path=batch.endpoint,
        body=body_of(raw_line, batch.model),
        rid=rid,
        request_class=RequestClass.OFFLINE,
        deadline_at=batch.due_at,
        # Not the time left in the window: that ends by the database's clock, not by this host's.
        timeout_s=limits.timeout_s,
        request_id=f"req_{rid}",
        served=served,
        batch_id=batch.id,
    )
    engine_lost = broken = False
    try:
        reply = await _asked(engine, call, row, batch)
    except EngineNotReached:
        # The engine never heard of the row: the attempt is none.
        put_back = PutBack(row.id, delay_s=retry.backoff_s(0, jitter))
        return Outcome(put_back, engine_lost=True)
    except EngineUnavailable as error:
        engine_lost = True
        # A call that took too long says nothing about the engine.
        broken = not isinstance(error.__cause__, TimeoutError)
        reply = _reply_of(error, call)
    except ApiError as error:
        reply = _reply_of(error, call)
    except Exception:
        logger.exception("row %d failed unexpectedly", row.id)
        reply = _reply_of(InternalError("The request could not be executed."), call)
    if broken and quarantine.is_final(row.num_losses + 1):
        return Outcome(given_up(row), engine_lost=True, given_up=True)
    not_held = served.not_held if reply.ok else set[str]()
    outcome = _judge(row, reply, not_held, engine_lost=engine_lost, limits=limits, jitter=jitter)
    if broken and isinstance(outcome.write, PutBack):
        return replace(outcome, write=replace(outcome.write, lost=True))
    return outcome


async def _asked(
    engine: EngineClient, call: EngineCall, row: ClaimedRow, batch: LiveBatch
) -> EngineReply:
    """What the engine answers, in a span of the trace in which the batch was created."""
    log_lines.request_id.set(call.request_id)
    facts: tracing.Facts = {
        "coserve.batch_id": batch.id,
        "coserve.row_id": row.id,
        "coserve.request_id": call.request_id,
    }
    with tracing.span("row", SpanKind.CONSUMER, facts, batch.traceparent):
        return await _ASK[call.path](engine, call)


def given_up(row: ClaimedRow, why: str = quarantine.FAILURE_MESSAGE) -> NewResult:
    """The end of a row that no engine survived, or whose like none did."""
    line = failure_line(row.id, row.custom_id, code=quarantine.FAILURE_CODE, message=why)
    return NewResult(row.id, row.batch_id, RowStatus.ERRORED, line)


def _reply_of(error: ApiError, call: EngineCall) -> EngineReply:
    return EngineReply(status_code=error.status, body=error_body(error), request_id=call.request_id)


def _is_refusal(reply: EngineReply) -> bool:
    """Whether the engine takes nothing now (429, 503). One that went away is another matter."""
    error = reply.body.get("error")
    return not reply.ok and error is not None and error.get("code") == Overloaded.default_code


def _judge(
    row: ClaimedRow,
    reply: EngineReply,
    not_held: set[str],
    *,
    engine_lost: bool,
    limits: AttemptLimits,
    jitter: float,
) -> Outcome:
    if _is_refusal(reply):
        put_back = PutBack(
            row.id,
            delay_s=retry.backoff_s(row.num_refusals, jitter),
            refused=True,
            error=reply.body.get("error"),
        )
        return Outcome(put_back, refused=True)
    status = RowStatus.SUCCEEDED
    if not reply.ok:
        status = RowStatus.ERRORED
        next_step = retry.after_failure(
            reply.status_code, row.attempt, max_attempts=limits.max_attempts, jitter=jitter
        )
        if isinstance(next_step, Again):
            error = reply.body.get("error")
            put_back = PutBack(row.id, delay_s=next_step.delay_s, counts=True, error=error)
            return Outcome(put_back, engine_lost=engine_lost)
    line = http_line(
        row.id,
        row.custom_id,
        status_code=reply.status_code,
        request_id=reply.request_id,
        body=reply.body,
        not_held=not_held,
    )
    usage = reply.usage or TokenUsage()
    result = NewResult(
        row_id=row.id,
        batch_id=row.batch_id,
        status=status,
        line=line,
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        completion_tokens=usage.completion_tokens,
        reasoning_tokens=usage.reasoning_tokens,
    )
    return Outcome(result, engine_lost=engine_lost)
