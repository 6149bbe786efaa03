"""Rows that ask the same are asked once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson
from sqlalchemy import text

from batch.finish.cancel import cancel
from batch.finish.finalize import finalize
from batch.finish.output import http_line
from batch.intake.validate import validate
from batch.rerun import retry_failed
from batch.run.repeats import WRITE_ROWS, give_known
from batch.states import BatchStatus, RowStatus
from engine_adapter.client.base import CHAT_PATH, RESPONSES_PATH
from engine_adapter.client.http import HttpEngineClient
from store.models import DEFAULT_PROJECT_ID, Batch, Project
from store.repositories import result as results
from store.repositories import row as rows
from store.repositories.result import NewResult
from tests.fakes.engine import FakeEngine
from tests.fixtures.batches import (
    MODEL,
    Bench,
    add_validating,
    file_lines,
    line,
    output_lines,
    read_batch,
    row_statuses,
)


def row(custom_id: str, prompt: str = "fake:text=four", **fields: Any) -> bytes:
    raw = orjson.loads(line(custom_id, prompt))
    raw["body"] |= {"temperature": 0, **fields}
    return orjson.dumps(raw)


async def checked(
    bench: Bench,
    lines: list[bytes],
    endpoint: str = CHAT_PATH,
    *,
    reuse_s: int | None = None,
    project_id: str = DEFAULT_PROJECT_ID,
) -> str:
    """A batch of these lines, validated; its id."""
    batch_id = await add_validating(
        bench.database, bench.file_store, lines, endpoint=endpoint, project_id=project_id
    )
    async with bench.database.unit_of_work() as session:
        (await session.get_one(Batch, batch_id)).reuse_s = reuse_s
    assert await validate(bench.database, bench.file_store, batch_id) is BatchStatus.IN_PROGRESS
    await give_known(bench.database, bench.queue, batch_id)
    return batch_id


def prompts(engine: FakeEngine) -> Counter[str]:
    """What the engine was asked, and how often."""
    return Counter(str(body["messages"][0]["content"]) for body in engine.received)


async def test_equal_rows_are_asked_once_and_all_answered(
    bench: Bench, engine: HttpEngineClient, fake_engine: FakeEngine
) -> None:
    lines = [row(f"{kind}{n}", f"fake:text={kind}") for n in range(4) for kind in ("a", "b")]
    batch_id = await checked(bench, lines)
    await bench.dispatch(engine)
    assert prompts(fake_engine) == {"fake:text=a": 1, "fake:text=b": 1}
    assert await finalize(bench.database, bench.file_store, batch_id) is BatchStatus.COMPLETED

    batch = await read_batch(bench.database, batch_id)
    assert (batch.num_total, batch.num_completed, batch.num_repeats) == (8, 8, 6)
    found: list[Any] = await file_lines(bench.file_store, batch.output_file_id)
    assert len({one["id"] for one in found}) == 8
    usages = {}
    for one in found:
        body = one["response"]["body"]
        assert body["choices"][0]["message"]["content"] == one["custom_id"][0]
        usages[one["custom_id"]] = body["usage"]
    # Nothing was computed for the repeats: their prompts are cached, and only the two are billed.
    for name, usage in usages.items():
        num_cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert num_cached == (0 if name in ("a0", "b0") else usage["prompt_tokens"])
    assert batch.completion_tokens == sum(one["completion_tokens"] for one in usages.values())
    served = fake_engine.served["offline"]
    assert served.completion_tokens == sum(usages[one]["completion_tokens"] for one in ("a0", "b0"))


async def test_the_order_of_fields_does_not_matter_and_every_value_does(
    bench: Bench, engine: HttpEngineClient, fake_engine: FakeEngine
) -> None:
    turned = orjson.loads(row("turned"))
    turned["body"] = dict(reversed(turned["body"].items()))
    lines = [
        row("first"),
        orjson.dumps(turned),
        row("shorter", max_tokens=3),
        row("seeded", temperature=1, seed=7),
        row("seeded alike", temperature=1, seed=7),
        row("seeded otherwise", temperature=1, seed=8),
    ]
    batch_id = await checked(bench, lines)
    await bench.dispatch(engine)
    assert len(fake_engine.received) == 4
    assert (await read_batch(bench.database, batch_id)).num_repeats == 2


async def test_what_is_drawn_is_drawn_for_each_row(
    bench: Bench, engine: HttpEngineClient, fake_engine: FakeEngine
) -> None:
    lines = [line(f"default{n}") for n in range(3)]
    lines += [row(f"warm{n}", temperature=0.5) for n in range(3)]
    lines += [row(f"null{n}", temperature=None, seed=None) for n in range(3)]
    batch_id = await checked(bench, lines)
    await bench.dispatch(engine)
    assert len(fake_engine.received) == 9
    assert (await read_batch(bench.database, batch_id)).num_repeats == 0


async def test_responses_too(
    bench: Bench, engine: HttpEngineClient, fake_engine: FakeEngine
) -> None:
    body = {"model": MODEL, "input": "fake:text=yes", "temperature": 0}
    lines = [
        orjson.dumps({"custom_id": str(n), "method": "POST", "url": RESPONSES_PATH, "body": body})
        for n in range(3)
    ]
    batch_id = await checked(bench, lines, RESPONSES_PATH)
    await bench.dispatch(engine)
    assert len(fake_engine.received) == 1
    first, *others = [one["response"]["body"]["usage"] for one in await answers(bench, batch_id)]
    for usage in others:
        assert usage["total_tokens"] == first["total_tokens"]
        assert usage["input_tokens_details"]["cached_tokens"] == first["input_tokens"]


async def answers(bench: Bench, batch_id: str) -> list[Any]:
    """The lines of the rows that succeeded, in the order in which they did."""
    return list(await output_lines(bench.database, batch_id, succeeded=True))


async def test_an_error_is_the_answer_of_all(
    bench: Bench, engine: HttpEngineClient, fake_engine: FakeEngine
) -> None:
    lines = [row(f"r{n}", "fake:status=400") for n in range(3)]
    batch_id = await checked(bench, lines)
    await bench.dispatch(engine)
    assert len(fake_engine.received) == 1
    assert set((await row_statuses(bench.database, batch_id)).values()) == {"errored"}
    failed: list[Any] = await output_lines(bench.database, batch_id, succeeded=False)
    assert sorted(one["custom_id"] for one in failed) == ["r0", "r1", "r2"]
    assert {one["response"]["status_code"] for one in failed} == {400}

    assert await finalize(bench.database, bench.file_store, batch_id) is BatchStatus.COMPLETED
    async with bench.database.unit_of_work() as session:
        retry = await retry_failed(session, DEFAULT_PROJECT_ID, batch_id)
    assert (retry.num_total, retry.num_repeats) == (3, 2)
    await bench.dispatch(engine)
    assert len(fake_engine.received) == 2
    assert set((await row_statuses(bench.database, retry.id)).values()) == {"errored"}


async def test_more_of_them_than_one_write_takes(
    bench: Bench, engine: HttpEngineClient, fake_engine: FakeEngine
) -> None:
    num_rows = 2 * WRITE_ROWS + 7
    batch_id = await checked(bench, [row(f"r{n}") for n in range(num_rows)])
    await bench.dispatch(engine)
    assert len(fake_engine.received) == 1
    assert await bench.due() == [batch_id]
    assert (await read_batch(bench.database, batch_id)).num_completed == num_rows


async def test_the_next_dispatcher_gives_on_what_the_last_one_left(
    bench: Bench, engine: HttpEngineClient, fake_engine: FakeEngine
) -> None:
    """The first row's answer is written, and its dispatcher ends before it is given on."""
    batch_id = await checked(bench, [row("a"), row("b"), row("c")])
    held = await bench.lease(engine.url)
    async with bench.database.unit_of_work() as session:
        (first,) = await rows.claim(session, held.id, {batch_id: 10})
        assert first.custom_id == "a"
        answer = http_line(first.id, "a", status_code=200, request_id="req_1", body={"id": "x"})
        result = NewResult(first.id, batch_id, RowStatus.SUCCEEDED, answer)
        await results.write(session, [result], dispatcher_id=held.id)
    await held.give_back()
    await bench.dispatch(engine)
    assert fake_engine.received == []
    found = await answers(bench, batch_id)
    assert [one["response"]["body"] for one in found] == [{"id": "x"}] * 3


async def test_a_cancel_in_between(bench: Bench, engine: HttpEngineClient) -> None:
    """What waits for a row that is cancelled is cancelled too, and a retry asks once again."""
    lines = [row(f"r{n}", "fake:tokens=500;ms=20 words") for n in range(3)]
    batch_id = await checked(bench, lines)
    async with bench.database.unit_of_work() as session:
        await cancel(session, DEFAULT_PROJECT_ID, batch_id)
    assert await finalize(bench.database, bench.file_store, batch_id) is BatchStatus.CANCELLED
    assert set((await row_statuses(bench.database, batch_id)).values()) == {"cancelled"}
    async with bench.database.unit_of_work() as session:
        retry = await retry_failed(session, DEFAULT_PROJECT_ID, batch_id)
    assert retry.num_repeats == 2


async def test_answers_of_an_earlier_batch_where_both_wish_it(
    bench: Bench, engine: HttpEngineClient, fake_engine: FakeEngine
) -> None:
    def some(start: int) -> list[bytes]:
        return [row(f"r{n}", f"fake:text={n}") for n in range(start, start + 6)]

    await checked(bench, some(0))  # does not give its answers
    await checked(bench, [*some(3), *some(10)], reuse_s=3600)
    await bench.dispatch(engine)
    fake_engine.received.clear()

    unlike = await checked(bench, some(3))
    await bench.dispatch(engine)
    assert len(fake_engine.received) == 6, "one that does not wish it asks again"
    assert (await read_batch(bench.database, unlike)).num_repeats == 0
    fake_engine.received.clear()

    batch_id = await checked(bench, [*some(0), row("again", "fake:text=3")], reuse_s=3600)
    await bench.dispatch(engine)
    assert prompts(fake_engine) == {f"fake:text={n}": 1 for n in range(3)}
    batch = await read_batch(bench.database, batch_id)
    assert (batch.num_completed, batch.num_repeats) == (7, 4)
    for one in await answers(bench, batch_id):
        body = one["response"]["body"]
        name = "r3" if one["custom_id"] == "again" else one["custom_id"]
        assert body["choices"][0]["message"]["content"] == name[1:]


async def test_a_batch_whose_rows_are_all_known_ends_without_an_engine(
    bench: Bench, engine: HttpEngineClient, fake_engine: FakeEngine
) -> None:
    lines = [row(f"r{n}", f"fake:text={n}") for n in range(WRITE_ROWS + 3)]
    await checked(bench, lines, reuse_s=3600)
    await bench.dispatch(engine)
    fake_engine.received.clear()
    batch_id = await checked(bench, lines, reuse_s=3600)
    assert fake_engine.received == []
    assert await finalize(bench.database, bench.file_store, batch_id) is BatchStatus.COMPLETED


async def test_answers_are_not_given_to_other_projects_after_their_time_or_once_deleted(
    bench: Bench, engine: HttpEngineClient, fake_engine: FakeEngine
) -> None:
    async with bench.database.unit_of_work() as session:
        ours = await session.get_one(Project, DEFAULT_PROJECT_ID)
        session.add(Project(id="proj_other", name="x", organization_id=ours.organization_id))
    source = await checked(bench, [row("a")], reuse_s=3600)
    await bench.dispatch(engine)

    async def asks(project_id: str = DEFAULT_PROJECT_ID) -> bool:
        fake_engine.received.clear()
        await checked(bench, [row("b")], reuse_s=1, project_id=project_id)
        await bench.dispatch(engine)
        return bool(fake_engine.received)

    assert not await asks()
    assert await asks("proj_other")
    async with bench.database.unit_of_work() as session:
        await session.execute(text("UPDATE batches SET created_at = created_at - interval '2 h'"))
    assert await asks()
    async with bench.database.unit_of_work() as session:
        await session.execute(text("UPDATE batches SET reuse_s = 86400"))
    assert not await asks()
    async with bench.database.unit_of_work() as session:
        await session.execute(text("DELETE FROM row_results"))
    assert await asks()
    assert source
