"""The engine as the service uses it: through HTTP, started by the product's own command line."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import pytest_asyncio

from coserve.setup.engine_env import chosen_sglang
from engine_adapter.client.base import CHAT_PATH, EngineCall, EngineFacts
from engine_adapter.client.http import HttpEngineClient
from engine_adapter.client.rid import new_rid
from engine_adapter.liveness import EngineNotProven, verify_engine
from engine_adapter.refusal import EXIT_REFUSED
from engine_adapter.scheduling.request import RequestClass
from tests.engine.engine_scripts import ROOT, run_code
from tests.fixtures.engine import START_LIMIT_S, RunningEngine, running_engine, tiny_settings
from tests.fixtures.tiny_model import CONTEXT_TOKENS

GONE_LIMIT_S = 2.0


@pytest_asyncio.fixture
async def client(engine: RunningEngine) -> AsyncIterator[HttpEngineClient]:
    """A client of the session's engine, which is proven first."""
    await verify_engine(engine.url, engine.model, START_LIMIT_S)
    http = HttpEngineClient(engine.url)
    yield http
    await http.close()


async def test_no_process_collects_what_it_holds_for_good(
    engine: RunningEngine, client: HttpEngineClient
) -> None:
    """SGLang tells of each process that left its objects out."""
    await client.live_rids()
    told = engine.log.read_text(errors="replace")
    for process in ("Tokenizer Manager", "Scheduler", "Detokenizer Manager"):
        assert f"Freezing GC in {process} process" in told


def chat(model: str, **fields: Any) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [{"role": "user", "content": "Count."}],
        "temperature": 0,
        "max_tokens": 8,
        **fields,
    }


def call(model: str, rid: str, **fields: Any) -> EngineCall:
    return EngineCall(CHAT_PATH, chat(model, **fields), rid, RequestClass.ONLINE)


async def gone_after_s(client: HttpEngineClient, rid: str) -> float:
    """Seconds until the engine no longer holds the request."""
    began_at = time.monotonic()
    while rid in await client.live_rids():
        assert time.monotonic() - began_at < 10, "the request never ended"
        await asyncio.sleep(0.05)
    return time.monotonic() - began_at


async def test_the_proof_tells_the_engines_facts(engine: RunningEngine) -> None:
    facts: EngineFacts = await verify_engine(engine.url, engine.model, START_LIMIT_S)
    assert facts.model == engine.model
    assert facts.context_tokens == CONTEXT_TOKENS
    assert facts.kv_tokens == 16_384
    assert facts.max_running == 16
    assert facts.version == chosen_sglang(ROOT)
    assert facts.raw["device"] == "cpu"
    assert facts.raw["coserve"]["plugin"] == "live"


async def test_another_model_than_expected_is_not_proven(
    engine: RunningEngine, client: HttpEngineClient
) -> None:
    with pytest.raises(EngineNotProven, match="serves 'tiny-random-llama', expected 'gpt-9'"):
        await verify_engine(engine.url, "gpt-9", 30)


async def test_a_streaming_request_is_live_and_gone_after_an_abort(
    engine: RunningEngine, client: HttpEngineClient
) -> None:
    rid = new_rid()
    stream = await client.stream(call(engine.model, rid, max_tokens=1500, ignore_eos=True))
    frames = aiter(stream)
    await anext(frames)
    assert rid in (await client.live_rids()).running
    began_at = time.monotonic()
    assert await client.abort(rid)
    assert time.monotonic() - began_at < GONE_LIMIT_S
    assert rid not in await client.live_rids()
    await stream.aclose()


async def test_letting_go_of_a_stream_frees_the_engine(
    engine: RunningEngine, client: HttpEngineClient
) -> None:
    rid = new_rid()
    stream = await client.stream(call(engine.model, rid, max_tokens=1500, ignore_eos=True))
    await anext(aiter(stream))
    await stream.aclose()
    assert await gone_after_s(client, rid) < GONE_LIMIT_S


async def test_waiting_requests_are_listed_and_can_be_aborted(
    engine: RunningEngine, client: HttpEngineClient
) -> None:
    """Sixteen slots, eighteen requests: two wait, and an abort reaches them there."""
    rids = [new_rid() for _ in range(18)]
    async with asyncio.TaskGroup() as group:
        for rid in rids:
            group.create_task(client.call(call(engine.model, rid, max_tokens=700, ignore_eos=True)))
        async with asyncio.timeout(20):
            live = await client.live_rids()
            while (len(live.running), len(live.waiting)) != (16, 2):  # not all have come
                await asyncio.sleep(0.05)
                live = await client.live_rids()
        assert live.waiting | live.running == set(rids)
        for rid in live.waiting | live.running:
            assert await client.abort(rid)
    assert len(await client.live_rids()) == 0


async def test_class_travels_in_the_private_fields(
    engine: RunningEngine, client: HttpEngineClient
) -> None:
    """`flex` is only in custom_params here: priority alone would read as offline."""
    rid = new_rid()
    body = chat(engine.model, max_tokens=1500, ignore_eos=True) | {
        "rid": rid,
        "priority": -2,
        "custom_params": {"coserve": {"class": "flex", "deadline_in_s": 60.0}},
    }
    async with httpx.AsyncClient(timeout=60) as http, asyncio.TaskGroup() as group:
        answer = group.create_task(http.post(engine.url + CHAT_PATH, json=body))
        async with asyncio.timeout(20):
            while rid not in (await client.live_rids()).running:
                await asyncio.sleep(0.02)
        live = (await client.facts()).raw["coserve"]["live"]
        assert live["classes"] == {rid: "flex"}
        assert await client.abort(rid)
    assert answer.result().status_code == 200


async def test_structured_output_is_json_and_the_engine_survives_bad_schemas(
    engine: RunningEngine, client: HttpEngineClient
) -> None:
    good = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 12},
            "size": {"enum": ["small", "large"]},
            "known": {"type": "boolean"},
        },
        "required": ["city", "size", "known"],
        "additionalProperties": False,
    }
    bad: list[dict[str, Any]] = [
        {"type": "objekt"},
        {"$ref": "#/nowhere"},
        {"type": "string", "pattern": "((a+"},
    ]
    for schema in bad:
        shape = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
        reply = await client.call(call(engine.model, new_rid(), response_format=shape))
        assert reply.status_code == 400, schema
        assert reply.body["error"]["param"] == "response_format", schema
    shape = {"type": "json_schema", "json_schema": {"name": "s", "schema": good}}
    reply = await client.call(
        call(engine.model, new_rid(), response_format=shape, max_tokens=200, temperature=1)
    )
    assert reply.ok
    # xgrammar lets control characters into strings of bounded length; this model writes noise.
    value = json.loads(reply.body["choices"][0]["message"]["content"], strict=False)
    assert set(value) == {"city", "size", "known"}
    assert value["size"] in {"small", "large"}


@pytest.mark.parametrize(
    "schema",
    [{"$ref": "#"}, {"allOf": [{"type": "string"}, {"type": "integer"}]}, {"enum": []}],
    ids=["endless", "contradiction", "nothing allowed"],
)
async def test_a_schema_that_nothing_satisfies_ends_only_its_own_request(
    engine: RunningEngine, client: HttpEngineClient, schema: dict[str, Any]
) -> None:
    """Stock SGLang samples from a row without an allowed token, raises, and is gone."""
    shape = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    for temperature in (0, 1):
        hurt = call(engine.model, new_rid(), response_format=shape, temperature=temperature)
        bystander = call(engine.model, new_rid(), max_tokens=32)
        async with asyncio.TaskGroup() as group:
            unhurt = group.create_task(client.call(bystander))
            group.create_task(client.call(hurt))
        assert unhurt.result().ok
    assert (await client.call(call(engine.model, new_rid()))).ok


async def test_a_schema_that_takes_minutes_to_compile_is_refused(
    engine: RunningEngine, client: HttpEngineClient
) -> None:
    bombs: list[dict[str, Any]] = [
        {"type": "string", "pattern": "^(((a{1,200}){1,200}){1,200}){1,200}$"},
        {"type": "string", "maxLength": 10_000_000},
        {"type": "object", "properties": {f"p{i}": {} for i in range(1001)}},
    ]
    for schema in bombs:
        shape = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
        reply = await client.call(call(engine.model, new_rid(), response_format=shape))
        assert reply.status_code == 400, schema


async def test_an_idle_engine_wakes_for_a_grammar_that_is_ready(
    engine: RunningEngine, client: HttpEngineClient
) -> None:
    """Stock SGLang sleeps on for up to a second after a grammar was compiled.

    The same request again, its grammar known, says what this machine needs without that.
    """

    async def ask(shape: dict[str, Any]) -> float:
        await asyncio.sleep(0.1)  # idle again
        began_at = time.monotonic()
        assert (await client.call(call(engine.model, new_rid(), response_format=shape))).ok
        return time.monotonic() - began_at

    longer_s = []
    for i in range(7):
        schema = {"name": "s", "schema": {"enum": [f"answer {i}"]}}
        shape = {"type": "json_schema", "json_schema": schema}
        longer_s.append(await ask(shape) - await ask(shape))
    assert sorted(longer_s)[3] < 0.6, longer_s


@pytest.mark.timeout(600)
async def test_an_idle_engine_needs_almost_no_cpu(
    engine: RunningEngine, client: HttpEngineClient
) -> None:
    leader = psutil.Process(engine.pid)
    family = [leader, *leader.children(recursive=True)]
    assert len(family) >= 3, "server, scheduler and detokenizer"

    def cpu_s() -> float:
        times = [process.cpu_times() for process in family]
        return sum(one.user + one.system for one in times)

    while (await client.facts()).raw["coserve"]["profile"]["state"] == "measuring":
        await asyncio.sleep(0.5)  # it fills every idle moment
    await asyncio.sleep(1.5)
    before_s, began_at = cpu_s(), time.monotonic()
    await asyncio.sleep(6)
    share = (cpu_s() - before_s) / (time.monotonic() - began_at)
    assert share < 0.05


@pytest.mark.thorough
async def test_a_plugin_sglang_cannot_even_import_is_not_ready(
    engine_python: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """SGLang logs it and starts stock; whoever asks for the word finds no one there."""
    broken = tmp_path / "broken" / "engine_adapter" / "sglang"
    broken.mkdir(parents=True)
    for folder in (broken.parent, broken):
        # The rest of the package is the real one.
        (folder / "__init__.py").write_text(
            "import pkgutil\n__path__ = pkgutil.extend_path(__path__, __name__)\n"
        )
    (broken / "plugin.py").write_text("raise RuntimeError('half written')\n")
    settings = tiny_settings(engine_python, tiny_model)
    with (
        running_engine(settings, tmp_path, PYTHONPATH=str(tmp_path / "broken")) as stock,
        pytest.raises(EngineNotProven, match="runs without coserve's scheduler plugin"),
    ):
        await verify_engine(stock.url, stock.model, START_LIMIT_S)


def test_another_sglang_ends_the_process() -> None:
    """SGLang swallows what a plugin raises, so the plugin ends the process itself."""
    done = run_code(
        "import engine_adapter.sglang.contract as contract\n"
        "contract.version = lambda name: '0.4.2'\n"
        "from engine_adapter.sglang.plugin import register\n"
        "register()\n"
    )
    assert done.returncode == EXIT_REFUSED
    assert "SGLang 0.4.2 is installed, this plugin was written for 0.5.16 and " in done.stderr
