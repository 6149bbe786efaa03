"""Section P: responses made in the background."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import orjson
from sqlalchemy import text

from batch.finish.collect import collect_files
from batch.finish.finalize import finalize
from batch.queue import STAGES
from engine_adapter.client.http import HttpEngineClient
from store.repositories import batch as batches
from tests.fixtures.batches import PATIENCE_S, Bench, end_window, until_status
from tests.fixtures.response_events import EventReader, check_response, read_stream
from tests.integration.contract.conftest import MODEL, Live, error_of

RESPONSES = "/v1/responses"


def begin(live: Live, given: Any = "fake:text=Paris", **more: Any) -> dict[str, Any]:
    body = {"model": MODEL, "input": given, "background": True, **more}
    with live.http() as http:
        reply = http.post(RESPONSES, json=body)
    assert reply.status_code == 200, reply.text
    made: dict[str, Any] = reply.json()
    return made


def get(live: Live, made: dict[str, Any]) -> dict[str, Any]:
    with live.http() as http:
        found: dict[str, Any] = http.get(f"{RESPONSES}/{made['id']}").json()
    check_response(found)
    return found


async def _batch_of(live: Live, response_id: str) -> str:
    async with live.database.unit_of_work() as session:
        query = text("SELECT id FROM batches WHERE response_id = :id")
        found: str = (await session.execute(query, {"id": response_id})).scalar_one()
        return found


def batch_of(live: Live, made: dict[str, Any]) -> str:
    return live.run(_batch_of(live, made["id"]))


def reached_the_engine(live: Live, given: str) -> bool:
    """Asked by its text: rows that other tests left behind may reach the engine meanwhile."""
    return any(given in str(body) for body in live.engine.received)


async def _window_of(live: Live, response_id: str) -> str:
    async with live.database.unit_of_work() as session:
        query = text("SELECT completion_window FROM batches WHERE response_id = :id")
        found: str = (await session.execute(query, {"id": response_id})).scalar_one()
        return found


def test_a_window_of_its_own(live: Live) -> None:
    for options, window in (
        ({}, "1h"),
        ({"background_options": {"completion_window": "soonest"}}, "1h"),
        ({"background_options": {"completion_window": "8h", "continuation_id": "c"}}, "8h"),
    ):
        made = begin(live, **options)
        assert live.run(_window_of(live, made["id"])) == window
        assert process(live, made)["status"] == "completed"


def process(live: Live, made: dict[str, Any]) -> dict[str, Any]:
    """What workers do with it; the response then."""

    async def work() -> None:
        file_store = live.gateway.app.state.file_store
        client = HttpEngineClient(live.engine_url)
        await Bench(live.database, file_store=file_store).dispatch(client)
        await client.close()
        await finalize(live.database, file_store, await _batch_of(live, made["id"]))

    live.run(work())
    return get(live, made)


@contextmanager
def dispatched(live: Live) -> Iterator[Future[Any]]:
    """A dispatcher at work beside the block; it ends when nothing is left to do."""

    async def work() -> None:
        client = HttpEngineClient(live.engine_url)
        await Bench(live.database, file_store=live.gateway.app.state.file_store).dispatch(client)
        await client.close()

    future = live.schedule(work())
    try:
        yield future
    finally:
        future.result(PATIENCE_S)


async def finalized(live: Live, made: dict[str, Any]) -> None:
    """End the batch of a response once its row has its result."""
    batch_id = await _batch_of(live, made["id"])
    await until_status(live.database, batch_id, "finalizing")
    await finalize(live.database, live.gateway.app.state.file_store, batch_id)


def wait_for(true: Callable[[], bool]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < until_s
        time.sleep(0.02)


def test_p_26_queued_then_completed(live: Live) -> None:
    num_before = len(live.engine.received)
    made = begin(live, metadata={"a": "b"}, instructions="Be brief.")
    check_response(made)
    assert (made["status"], made["background"], made["output"]) == ("queued", True, [])
    assert get(live, made) == made
    assert len(live.engine.received) == num_before
    done = process(live, made)
    assert done["status"] == "completed"
    assert done["output"][0]["content"][0]["text"] == "Paris"
    assert done["usage"]["output_tokens"] > 0
    changed = {"status", "output", "usage", "completed_at"}
    assert {key: value for key, value in done.items() if key not in changed} == {
        key: value for key, value in made.items() if key not in changed
    }


def test_p_26_the_project_sees_no_batch_and_no_file_of_it(live: Live) -> None:
    with live.client() as client:
        before = {one.id for one in client.batches.list(limit=100)}
        files_before = {one.id for one in client.files.list()}
        made = begin(live)
        batch_id = batch_of(live, made)
        assert {one.id for one in client.batches.list(limit=100)} == before
        assert {one.id for one in client.files.list()} == files_before
    with live.http() as http:
        error_of(http.get(f"/v1/batches/{batch_id}"), 404)
        error_of(http.post(f"/v1/batches/{batch_id}/cancel"), 404)
    process(live, made)


def test_p_26_nothing_of_it_is_left_but_the_response(live: Live) -> None:
    made = begin(live)
    batch_id = batch_of(live, made)
    file_store = live.gateway.app.state.file_store

    async def left() -> tuple[int, bool]:
        async with live.database.unit_of_work() as session:
            query = text("SELECT count(*) FROM row_results WHERE batch_id = :id")
            num_results = await session.scalar(query, {"id": batch_id})
            query = text(
                "SELECT collected_at IS NOT NULL FROM files f JOIN batches b"
                " ON b.input_file_id = f.id WHERE b.id = :id"
            )
            collected = await session.scalar(query, {"id": batch_id})
        return int(num_results or 0), bool(collected)

    live.run(collect_files(live.database, file_store))
    assert live.run(left()) == (0, False)  # a live batch keeps its input
    process(live, made)
    live.run(collect_files(live.database, file_store))
    assert live.run(left()) == (0, True)


def test_p_27_streamed_while_it_is_made(live: Live) -> None:
    body = {"model": MODEL, "input": "fake:text=two", "background": True, "stream": True}
    reader = EventReader()
    with live.http() as http, http.stream("POST", RESPONSES, json=body) as reply:
        for line in reply.iter_lines():
            if line.startswith("data: "):
                reader.feed(orjson.loads(line.removeprefix("data: ")))
                if reader.kinds == ["response.created", "response.queued"]:
                    assert reader.response is not None
                    process(live, reader.response)
    assert reader.kinds[2] == "response.in_progress"
    told = reader.finish()
    assert told == get(live, told)


def test_p_27_gone_on_with_from_any_event(live: Live) -> None:
    made = begin(live)
    done = process(live, made)
    path = f"{RESPONSES}/{made['id']}"
    with live.http() as http:
        raw = http.get(path, params={"stream": "true"}).content
        reader = read_stream(raw)
        assert reader.kinds[:3] == [
            "response.created", "response.queued", "response.in_progress",
        ]  # fmt: skip
        assert reader.finish() == done
        for number in range(len(reader.kinds)):
            rest = http.get(path, params={"stream": "true", "starting_after": number}).content
            assert raw.endswith(rest)


def test_p_28_cancelled_before_it_has_begun(live: Live) -> None:
    made = begin(live, "fake:text=never cancelled")
    with live.client(_strict_response_validation=True) as client:
        assert client.responses.cancel(made["id"]).status == "cancelled"
        assert client.responses.cancel(made["id"]).status == "cancelled"
    assert process(live, made)["status"] == "cancelled"
    assert not reached_the_engine(live, "fake:text=never cancelled")
    with live.http() as http:
        raw = http.get(f"{RESPONSES}/{made['id']}", params={"stream": "true"}).content
    last = orjson.loads(raw.split(b"\n\n")[-2].split(b"data: ")[1])
    assert (last["type"], last["response"]["status"]) == ("response.incomplete", "cancelled")


def test_p_28_cancelled_while_the_engine_makes_it(live: Live) -> None:
    made = begin(live, "never made fake:tokens=10 fake:token_ms=60000")
    with live.http() as http, dispatched(live) as dispatching:
        wait_for(lambda: reached_the_engine(live, "never made") and bool(live.engine.running))
        assert get(live, made)["status"] == "in_progress"
        cancelled = http.post(f"{RESPONSES}/{made['id']}/cancel").json()
        check_response(cancelled)
        assert (cancelled["status"], cancelled["output"]) == ("cancelled", [])
        dispatching.result(PATIENCE_S)  # its only row was stopped
        wait_for(lambda: not live.engine.running)
    live.run(finalize(live.database, live.gateway.app.state.file_store, batch_of(live, made)))
    assert get(live, made) == cancelled


def test_p_28_what_has_ended_cannot_be_cancelled(live: Live) -> None:
    made = begin(live)
    process(live, made)
    with live.http() as http:
        error = error_of(http.post(f"{RESPONSES}/{made['id']}/cancel"), 400)
    assert "completed" in error["message"]
    assert get(live, made)["status"] == "completed"


def test_p_28_deleted_while_it_waits(live: Live) -> None:
    made = begin(live, "fake:text=never deleted")
    with live.http() as http:
        assert http.delete(f"{RESPONSES}/{made['id']}").json()["deleted"]
        error_of(http.get(f"{RESPONSES}/{made['id']}"), 404)
    live.run(finalize(live.database, live.gateway.app.state.file_store, batch_of(live, made)))
    assert not reached_the_engine(live, "fake:text=never deleted")


def test_p_29_one_that_the_engine_refuses_has_failed(live: Live) -> None:
    done = process(live, begin(live, "x " * 5000))
    assert done["status"] == "failed"
    assert done["error"]["code"] == "invalid_prompt"
    assert done["error"]["message"]


def test_p_29_one_that_comes_too_late_has_failed(live: Live) -> None:
    made = begin(live)
    batch_id = batch_of(live, made)
    live.run(end_window(live.database, batch_id))
    live.run(finalize(live.database, live.gateway.app.state.file_store, batch_id))
    done = get(live, made)
    assert (done["status"], done["error"]["code"]) == ("failed", "server_error")


def test_p_30_going_on_from_one(live: Live) -> None:
    with live.http() as http:
        talk = http.post("/v1/conversations", json={}).json()["id"]
    first = begin(live, "fake:text=one", conversation=talk)
    body = {"model": MODEL, "input": "x", "previous_response_id": first["id"]}
    with live.http() as http:
        error = error_of(http.post(RESPONSES, json=body), 400)
    assert error["code"] == "previous_response_not_completed"
    process(live, first)
    second = begin(live, "fake:text=two", previous_response_id=first["id"])
    process(live, second)
    sent = [(one["role"], one["content"]) for one in live.engine.received[-1]["messages"]]
    assert sent == [("user", "fake:text=one"), ("assistant", "one"), ("user", "fake:text=two")]
    with live.client() as client:
        items = client.conversations.items.list(talk, order="asc")
        assert [item.role for item in items if item.type == "message"] == ["user", "assistant"]


def test_p_26_another_project_sees_none_of_it(live: Live) -> None:
    made = begin(live, "fake:text=private")
    path = f"{RESPONSES}/{made['id']}"
    own = live.http()
    for is_over in (False, True):
        if is_over:
            process(live, made)
        with live.http(live.other_key) as http:
            for reply in (
                http.get(path),
                http.get(path, params={"stream": "true"}),
                http.get(f"{path}/input_items"),
                http.post(f"{path}/cancel"),
                http.delete(path),
            ):
                assert error_of(reply, 404)["param"] == "response_id"
            body = {"model": MODEL, "input": "x", "previous_response_id": made["id"]}
            for more in ({}, {"background": True}):
                error_of(http.post(RESPONSES, json={**body, **more}), 404)
    with own as http:
        assert http.get(path).json()["output"][0]["content"][0]["text"] == "private"


def test_p_27_streamed_later_while_the_engine_makes_it(live: Live) -> None:
    """Begun without a stream; who comes later reads all of its events, up to an end to come."""
    made = begin(live, "fake:text=later fake:token_ms=200")
    reader = EventReader()
    with live.http() as http, dispatched(live):
        wait_for(lambda: reached_the_engine(live, "fake:text=later"))
        with http.stream("GET", f"{RESPONSES}/{made['id']}", params={"stream": "true"}) as reply:
            for line in reply.iter_lines():
                if not line.startswith("data: "):
                    continue
                reader.feed(orjson.loads(line.removeprefix("data: ")))
                if reader.kinds[-1] == "response.in_progress":
                    # Written by the dispatcher, then by who finalizes.
                    live.schedule(finalized(live, made))
    assert reader.finish()["output"][0]["content"][0]["text"] == "later"


def test_p_31_wrong_ones_are_refused_before_anything_is_stored(live: Live) -> None:
    async def num_batches() -> int:
        async with live.database.unit_of_work() as session:
            return int(await session.scalar(text("SELECT count(*) FROM batches")) or 0)

    before = live.run(num_batches())
    with live.http() as http:
        for more, status, param in (
            ({"store": False}, 400, "background"),
            ({"model": "nope"}, 404, "model"),
            ({"temperature": 3}, 400, "temperature"),
            ({"previous_response_id": "resp_none"}, 404, "previous_response_id"),
        ):
            body = {"model": MODEL, "input": "x", "background": True, **more}
            assert error_of(http.post(RESPONSES, json=body), status)["param"] == param
    assert live.run(num_batches()) == before


def test_p_31_it_goes_before_batches(live: Live) -> None:
    made = begin(live)

    async def priorities() -> tuple[int, int]:
        async with live.database.unit_of_work() as session:
            query = text("SELECT priority FROM batches WHERE response_id = :id")
            own = await session.scalar(query, {"id": made["id"]})
            query = text("SELECT COALESCE(max(priority), 0) FROM batches WHERE response_id IS NULL")
            return int(own or 0), int(await session.scalar(query) or 0)

    own, others = live.run(priorities())
    assert own > max(others, 100)
    process(live, made)


def test_p_31_an_engine_is_told_that_it_was_due_before_any_batch(live: Live) -> None:
    process(live, begin(live, "fake:text=due"))
    (sent,) = [one for one in live.engine.received if "fake:text=due" in str(one)]
    assert sent["custom_params"]["coserve"]["class"] == "offline"
    assert sent["custom_params"]["coserve"]["deadline_in_s"] == 0


def test_p_31_finalization_is_asked_for_by_the_dispatcher(live: Live) -> None:
    made = begin(live)
    bench = Bench(live.database, file_store=live.gateway.app.state.file_store)

    async def work() -> None:
        client = HttpEngineClient(live.engine_url)
        await bench.dispatch(client)
        await client.close()

    live.run(work())
    batch_id = batch_of(live, made)
    assert STAGES in bench.queue.sent
    assert batch_id in live.run(bench.due()), "other batches of this module may be due too"
    assert get(live, made)["status"] == "in_progress"
    live.run(finalize(live.database, live.gateway.app.state.file_store, batch_id))
    assert get(live, made)["status"] == "completed"


def test_who_goes_first(live: Live) -> None:
    """Soonest first; then by window's end, a later turn of a program where its first one was."""

    def made(window: str, program: str | None = None) -> str:
        options = {"completion_window": window, "continuation_id": program}
        options = {name: value for name, value in options.items() if value is not None}
        response: str = begin(live, background_options=options)["id"]
        return response

    first, second = made("8h", "first"), made("8h", "second")
    quick, soonest = made("2h", "first"), made("soonest")
    later, other = made("8h", "first"), made("8h", "third")
    again = made("soonest", "now"), made("soonest"), made("soonest", "now")

    async def order() -> list[str]:
        async with live.database.unit_of_work() as session:
            found = await batches.live(session, [MODEL], per_project=500)
            names = {
                one.id: one.response_id
                for one in await batches.find_all(session, [each.id for each in found])
            }
        ordered = sorted(found, key=lambda one: (-one.priority, one.due_at))
        return [str(names[one.id]) for one in ordered]

    wanted = [soonest, again[0], again[2], again[1], quick, first, later, second, other]
    assert [one for one in live.run(order()) if one in wanted] == wanted
    with live.http() as http:
        for response_id in wanted:
            assert http.post(f"{RESPONSES}/{response_id}/cancel").status_code == 200


def test_its_end_is_told_to_webhooks(live: Live) -> None:
    """Of the response, never of the batch behind it; and only to who asked for it."""
    with live.http() as http:
        asked = {"url": "https://8.8.8.8/hook", "name": "x"}
        responses, others = (
            http.post("/v1/webhook_endpoints", json={**asked, "event_types": types}).json()["id"]
            for types in (
                ["response.completed", "response.cancelled"],
                ["batch.completed", "batch.cancelled", "response.failed"],
            )
        )
        done = process(live, begin(live))
        stopped = begin(live)
        http.post(f"{RESPONSES}/{stopped['id']}/cancel")

        async def sent() -> list[tuple[str, str, str]]:
            file_store = live.gateway.app.state.file_store
            await finalize(live.database, file_store, await _batch_of(live, stopped["id"]))
            query = text("SELECT endpoint_id, event_type, batch_id FROM webhook_deliveries")
            async with live.database.unit_of_work() as session:
                found = [tuple(row) for row in await session.execute(query)]
            return [one for one in found if one[0] in (responses, others)]

        assert sorted(live.run(sent())) == sorted(
            [
                (responses, "response.completed", done["id"]),
                (responses, "response.cancelled", stopped["id"]),
            ]
        )
        for endpoint_id in (responses, others):
            http.delete(f"/v1/webhook_endpoints/{endpoint_id}")
