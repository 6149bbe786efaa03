"""One run of a soak: the whole stack with the real engine, one batch, and its answers."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson
from openai import AsyncOpenAI
from prometheus_client.parser import text_string_to_metric_families

from batch.states import TERMINAL_BATCH
from tests.chaos.installation import Installation
from tests.chaos.suite import DEFAULT_MODEL, REAL_START_LIMIT_S
from tests.soak.lines import make_lines
from tests.soak.traffic import Traffic

PROFILE_LIMIT_S = 600.0
STRICT = {
    "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY": "1",
    "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE": "1",
}
UNDISTURBED = {"COSERVE_POLICY": "non_preemptive"}
DISTURBED = {
    "COSERVE_POLICY": "conserve_v2",
    "COSERVE_ENGINE_ARGS": "--max-total-tokens 4096 --max-running-requests 16",
    "COSERVE_TTFT_MS": "400",
    "COSERVE_TBT_MS": "150",
    "COSERVE_SAFEPOINT_MS": "5",
}
"""Little memory, few slots, targets that a step of offline work cannot meet, safepoints at every
other layer: as much is stopped, parked, retracted and fetched as can be."""


@dataclass
class Outcome:
    """What came of a run.

    Attributes:
        answers: Of each line: texts and finish reasons, or the whole line where it failed.
        runtime: The engine's figures by name, labels added up (docs/metrics.md).
        traffic: What disturbed it; none in an undisturbed run.
        log_tracebacks: In the engine's log.
    """

    status: str
    answers: dict[str, Any]
    runtime: dict[str, float]
    wall_s: float
    log_tracebacks: int = 0
    traffic: Traffic | None = field(default=None, repr=False)


async def soak(
    settings: Mapping[str, str], num_lines: int, *, seed: int | None, limit_s: float
) -> Outcome:
    """Run the batch; disturbed by traffic of that seed if there is one.

    Args:
        limit_s: The traffic ends after so long, whatever is left of the batch.
    """
    async with _stack(settings) as (installation, client):
        models = await client.models.list()
        model = models.data[0].id
        data = make_lines(model, num_lines)
        file = await client.files.create(file=("soak.jsonl", data), purpose="batch")
        batch = await client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        loop = asyncio.get_running_loop()
        began_s, over = loop.time(), asyncio.Event()
        traffic = None
        async with asyncio.TaskGroup() as group:
            if seed is not None:
                traffic = Traffic(client, model, batch.id, random.Random(seed))
                group.create_task(traffic.run(over))
            while batch.status not in TERMINAL_BATCH:
                await asyncio.sleep(1.0)
                batch = await client.batches.retrieve(batch.id)
                if loop.time() - began_s > limit_s:
                    over.set()
            wall_s = loop.time() - began_s
            over.set()
        answers: dict[str, Any] = {}
        for file_id in filter(None, (batch.output_file_id, batch.error_file_id)):
            content = await client.files.content(file_id)
            answers |= dict(_answer(line) for line in content.text.splitlines())
        runtime = await _runtime(installation)
        log = (installation.home / "log/engine.log").read_text(errors="replace")
    return Outcome(batch.status, answers, runtime, wall_s, log.count("Traceback"), traffic)


@asynccontextmanager
async def _stack(settings: Mapping[str, str]) -> AsyncIterator[tuple[Installation, AsyncOpenAI]]:
    folder = Path(tempfile.mkdtemp(prefix="css-"))
    given = {"COSERVE_MODEL": str(DEFAULT_MODEL), **STRICT, **settings}
    installation = Installation(folder / "home", None, **given)
    try:
        await asyncio.to_thread(installation.start, REAL_START_LIMIT_S)
        await _until_profiled(installation)
        base_url = f"{installation.url}/v1"
        async with AsyncOpenAI(base_url=base_url, api_key=installation.key) as client:
            yield installation, client
    finally:
        await asyncio.to_thread(installation.stop)
        shutil.rmtree(folder, ignore_errors=True)


async def _until_profiled(installation: Installation) -> None:
    """Until then another policy runs."""
    async with httpx.AsyncClient() as http, asyncio.timeout(PROFILE_LIMIT_S):
        while True:
            ready = (await http.get(f"{installation.url}/statusz")).json()
            if ready["parts"]["engine"]["profile"] not in (None, "measuring"):
                return
            await asyncio.sleep(1.0)


def _answer(line: str) -> tuple[str, Any]:
    said = orjson.loads(line)
    body = (said.get("response") or {}).get("body") or {}
    choices = [(c["message"]["content"], c["finish_reason"]) for c in body.get("choices", ())]
    return said["custom_id"], choices or said


async def _runtime(installation: Installation) -> dict[str, float]:
    async with httpx.AsyncClient() as http:
        text = (await http.get(f"{installation.url}/metrics")).text
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("coserve_runtime_"):
                name = sample.name.removeprefix("coserve_runtime_")
                kind = sample.labels.get("kind", "")
                name = f"{name}_{kind}" if name == "stopped_steps_total" else name
                found[name] = found.get(name, 0.0) + sample.value
    return found
