"""One row at a fake engine: what becomes of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from batch.run.execute import AttemptLimits, Outcome, execute
from batch.run.quarantine import FAILURE_CODE, MAX_LOSSES
from batch.run.retry import backoff_s
from engine_adapter.client.base import CHAT_PATH, EngineCall, EngineReply, Served
from engine_adapter.client.rid import new_rid
from engine_adapter.scheduling.request import RequestClass
from store.repositories.batch import LiveBatch
from store.repositories.result import NewResult
from store.repositories.row import ClaimedRow, PutBack
from tests.fakes.client import FakeEngine, FakeEngineClient, FakeSettings

LIMITS = AttemptLimits(max_attempts=3, timeout_s=60.0)
LATER = datetime.now(UTC) + timedelta(hours=1)  # noqa: TID251 - a deadline for the real clock


def _row(attempt: int = 0, num_refusals: int = 0) -> ClaimedRow:
    return ClaimedRow(7, "batch_1", "mine", 0, 0, attempt, num_refusals=num_refusals)


def _batch(expires_at: datetime = LATER) -> LiveBatch:
    return LiveBatch("batch_1", "proj", CHAT_PATH, 0, 1, expires_at, "file")


def _line(prompt: str) -> bytes:
    body = {"model": "fake-model", "messages": [{"role": "user", "content": prompt}]}
    return orjson.dumps({"custom_id": "mine", "method": "POST", "url": CHAT_PATH, "body": body})


async def _execute(
    prompt: str,
    *,
    attempt: int = 0,
    num_refusals: int = 0,
    client: FakeEngineClient | None = None,
) -> Outcome:
    return await execute(
        _row(attempt, num_refusals),
        _line(prompt),
        _batch(),
        client or FakeEngineClient(),
        rid=new_rid(),
        limits=LIMITS,
        jitter=0.0,
        served=Served(),
    )


async def test_an_answer_becomes_an_output_line() -> None:
    outcome = await _execute("fake:text=Paris one two")
    assert isinstance(outcome.write, NewResult)
    assert (outcome.write.row_id, outcome.write.status) == (7, "succeeded")
    assert outcome.write.prompt_tokens == 3
    assert outcome.write.completion_tokens == 1
    line: dict[str, Any] = orjson.loads(outcome.write.line)
    assert line["custom_id"] == "mine"
    assert line["response"]["status_code"] == 200
    assert line["response"]["body"]["choices"][0]["message"]["content"] == "Paris"
    assert line["response"]["request_id"].startswith("req_")


async def test_a_row_asks_for_the_model_that_its_alias_stands_for() -> None:
    line = _line("fake:text=Paris").replace(b'"fake-model"', b'"usual"')
    batch = replace(_batch(), model="fake-model")
    outcome = await execute(
        _row(), line, batch, FakeEngineClient(), rid=new_rid(), limits=LIMITS, jitter=0.0,
        served=Served(),
    )  # fmt: skip
    assert isinstance(outcome.write, NewResult)
    assert orjson.loads(outcome.write.line)["response"]["body"]["model"] == "fake-model"


async def test_a_bad_request_becomes_an_error_line() -> None:
    outcome = await _execute("fake:status=400")
    assert isinstance(outcome.write, NewResult)
    assert outcome.write.status == "errored"
    line: dict[str, Any] = orjson.loads(outcome.write.line)
    assert line["response"]["status_code"] == 400
    assert line["error"] is None


@pytest.mark.parametrize("status", [408, 500, 502])
async def test_what_may_pass_is_put_back(status: int) -> None:
    outcome = await _execute(f"fake:status={status}")
    assert isinstance(outcome.write, PutBack)
    assert outcome.write.counts
    assert outcome.write.delay_s > 0
    assert outcome.write.error is not None
    assert not outcome.refused
    assert not outcome.engine_lost


@pytest.mark.parametrize("status", [429, 503])
async def test_a_refusal_is_no_attempt_and_has_its_own_pause(status: int) -> None:
    last_attempt = LIMITS.max_attempts - 1
    outcome = await _execute(f"fake:status={status}", attempt=last_attempt, num_refusals=3)
    assert isinstance(outcome.write, PutBack), "however often: the window is the bound"
    assert outcome.write.refused
    assert not outcome.write.counts
    assert outcome.write.delay_s == backoff_s(3, 0.0) > backoff_s(last_attempt, 0.0)
    assert outcome.write.error is not None
    assert outcome.refused
    assert not outcome.engine_lost


async def test_the_last_attempt_is_final() -> None:
    outcome = await _execute("fake:status=500", attempt=2)
    assert isinstance(outcome.write, NewResult)
    assert outcome.write.status == "errored"


async def test_a_lost_engine_is_told_apart() -> None:
    client = FakeEngineClient()
    client.engine.down = True
    outcome = await _execute("hello", client=client)
    assert outcome.engine_lost
    assert not outcome.refused
    assert isinstance(outcome.write, PutBack)
    assert not outcome.write.counts, "the engine never heard of the row"
    assert not outcome.write.lost


async def test_an_engine_lost_with_the_row_is_counted_and_bounded() -> None:
    outcome = await _execute("fake:die_after=0")
    assert isinstance(outcome.write, PutBack)
    assert outcome.write.lost
    row = _row()._replace(num_losses=MAX_LOSSES - 1)
    last = await execute(
        row, _line("fake:die_after=0"), _batch(), FakeEngineClient(),
        rid=new_rid(), limits=LIMITS, jitter=0.0, served=Served(),
    )  # fmt: skip
    assert last.engine_lost
    assert isinstance(last.write, NewResult)
    assert last.write.status == "errored"
    line: dict[str, Any] = orjson.loads(last.write.line)
    assert line["response"] is None
    assert line["error"]["code"] == FAILURE_CODE


async def test_a_call_that_takes_too_long_blames_nobody() -> None:
    client = FakeEngineClient(FakeEngine(FakeSettings(latency_s=60)))
    outcome = await execute(
        _row(), _line("x"), _batch(), client,
        rid=new_rid(), limits=AttemptLimits(max_attempts=3, timeout_s=0.05), jitter=0.0,
        served=Served(),
    )  # fmt: skip
    assert isinstance(outcome.write, PutBack)
    assert outcome.write.counts
    assert not outcome.write.lost


async def test_a_cancelled_row_leaves_the_engine() -> None:
    client = FakeEngineClient(FakeEngine(FakeSettings(latency_s=60)))
    task = asyncio.ensure_future(_execute("hello", client=client))
    while not client.engine.running:
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not client.engine.running


class _Remembers(FakeEngineClient):
    """Remembers the call, and breaks in a way nobody thought of."""

    seen: EngineCall | None = None

    async def call(self, call: EngineCall) -> EngineReply:
        self.seen = call
        raise RuntimeError("surprise")


async def test_the_engine_learns_class_and_deadline_and_a_surprise_is_one_row_s() -> None:
    client = _Remembers()
    expires_at = datetime(2020, 1, 1, tzinfo=UTC)  # over, by this host's clock
    outcome = await execute(
        _row(), _line("x"), _batch(expires_at), client,
        rid="ab" * 16, limits=LIMITS, jitter=0.0, served=Served(),
    )  # fmt: skip
    assert client.seen is not None
    assert client.seen.request_class is RequestClass.OFFLINE
    assert client.seen.deadline_at == expires_at
    assert client.seen.batch_id == "batch_1", "engines share between batches"
    assert client.seen.rid == "ab" * 16
    assert client.seen.timeout_s == LIMITS.timeout_s
    assert isinstance(outcome.write, PutBack)
    assert not outcome.engine_lost
