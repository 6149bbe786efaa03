"""SGLang with the plugin on an emulated GPU: times of a table, answers that show what was lost."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine_adapter.engine_process import EngineSettings
from engine_adapter.gpu_tables.gpu_table import CUDA_GRAPH_BATCH_SIZES, GpuTimes, load_gpu_table
from engine_adapter.scheduling.latency import StepLoad
from engine_adapter.scheduling.profile import load_profile
from lab.emulated.clock import VirtualClock
from lab.emulated.model_dir import write_model_dir
from lab.emulated.virtual_loop import VirtualTimeLoop
from tests.engine.forked_engine import forked_engine
from tests.engine.test_stored_profile import MEASURED_IN_S
from tests.fixtures.engine import START_LIMIT_S, TOKENIZER, tiny_settings

pytestmark = pytest.mark.thorough

TABLE = "h100-llama-3.1-8b"


def expected(prompt: int, tokens: int) -> list[int]:
    """Token ids of an answer: each row's length says which comes next."""
    return [256 + (prompt + number) % 1024 for number in range(tokens)]


async def ask(http: httpx.AsyncClient, prompt: int, tokens: int, priority: int) -> bool:
    body: dict[str, Any] = {
        "input_ids": [300 + (prompt * 7 + number) % 5000 for number in range(prompt)],
        "sampling_params": {"max_new_tokens": tokens, "ignore_eos": True, "temperature": 0.0},
        "priority": priority,
    }
    answer = (await http.post("/generate", json=body)).raise_for_status().json()
    return bool(answer["output_ids"] == expected(prompt, tokens))


async def profile_state(http: httpx.AsyncClient) -> str:
    """What became of the profile; the service's own proof wants JSON, which no such engine says."""
    async with asyncio.timeout(START_LIMIT_S + MEASURED_IN_S):
        while True:
            try:
                info = (await http.get("/server_info")).raise_for_status().json()
                state = str(info["internal_states"][0]["coserve"]["profile"]["state"])
                if state != "measuring":
                    return state
            except httpx.HTTPError:
                pass  # not up yet
            await asyncio.sleep(0.5)


def settings(python: Path, folder: Path) -> EngineSettings:
    model = write_model_dir(load_gpu_table(TABLE), TOKENIZER, folder)
    return tiny_settings(python, model, "--load-format", "dummy")


async def no_token_is_lost(url: str) -> None:
    """Chats beside documents, on the host's clock."""
    async with httpx.AsyncClient(base_url=url, timeout=120) as http:
        assert await profile_state(http) == "ready"
        offline = [ask(http, 700 + number, 40, -100) for number in range(12)]
        online = [ask(http, 90 + number, 20, 100) for number in range(8)]
        assert all(await asyncio.gather(*offline, *online))


async def every_token_has_its_instant(url: str, group: int) -> None:
    """A chat alone, after ten minutes of virtual time in which nobody asked."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    times = GpuTimes(load_gpu_table(TABLE), batch_size_buckets=CUDA_GRAPH_BATCH_SIZES)
    prompt, tokens = 300, 12
    steps_s = [times.step_s([(prompt, 0)], 0, 0)]
    steps_s += [times.step_s((), 1, prompt + made) for made in range(tokens - 1)]
    body: dict[str, Any] = {
        "input_ids": [1000 + number for number in range(prompt)],
        "sampling_params": {"max_new_tokens": tokens, "ignore_eos": True, "temperature": 0.0},
        "priority": 100,
        "stream": True,
    }
    with loop.virtual(group):
        await asyncio.sleep(600.0)
        began_s = loop.time()
        async with (
            httpx.AsyncClient(base_url=url, timeout=120) as http,
            http.stream("POST", "/generate", json=body) as answer,
        ):
            came_s = [
                loop.time() - began_s
                async for line in answer.aiter_lines()
                if line.startswith("data: {")
            ]
    assert came_s == pytest.approx(list(accumulate(steps_s)), abs=1e-6)


@pytest.mark.timeout(600)
def test_an_emulated_gpu_keeps_its_times_and_no_token_is_lost(
    engine_python: Path, tmp_path: Path
) -> None:
    report = tmp_path / "passes.json"
    profiles = tmp_path / "profiles"
    clock = VirtualClock.create(tmp_path / "clock")
    with forked_engine(
        settings(engine_python, tmp_path),
        tmp_path,
        COSERVE_EMULATED=TABLE,
        COSERVE_EMULATED_REPORT=str(report),
        COSERVE_EMULATED_CLOCK=str(tmp_path / "clock"),
        COSERVE_PROFILE_DIR=str(profiles),
    ) as engine:
        asyncio.run(no_token_is_lost(engine.url))
        counts = json.loads(report.read_text())
        assert counts["passes"] > 40 < counts["busy_s"] * 1000
        with asyncio.Runner(loop_factory=partial(VirtualTimeLoop, clock)) as runner:
            runner.run(every_token_has_its_instant(engine.url, engine.pid))
    # What the plugin's own profiler measured is what the table says, with captured graphs' padding.
    [stored] = profiles.glob("*.json")
    profile = load_profile(stored)
    assert profile.decode_row_steps
    times = GpuTimes(load_gpu_table(TABLE), batch_size_buckets=CUDA_GRAPH_BATCH_SIZES)
    for rows in (1, 4, 8):
        load = StepLoad()
        for _ in range(rows):
            load.add_decode(512)
        table_s = times.step_s((), rows, rows * 512)
        assert profile.model().predict(load) == pytest.approx(table_s, rel=0.1)
