"""A real `--tp 2` engine on a CPU, under the default policy: chat and offline rows at once.

Once on one node, and once with a rank on each of two: network namespaces with a link between them.

Every online prompt is longer than its target allows, so an arrival stops whatever armed step runs
at its next safepoint. The test goes on until steps were stopped before three different layers,
however long that takes, then asks for answers once more, alone, and compares. (Stops before every
layer are forced in ``coserving_two_ranks.py``.) The engine runs under the supervisor's own part.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import pytest_asyncio

from coserve.local.command import Command
from coserve.local.part import ManagedProcess, Part, PartPlan
from coserve.local.ports import free_port
from coserve.local.probes import answers_200
from engine_adapter.client.rid import new_rid
from engine_adapter.engine_process import engine_command
from tests.fixtures.engine import TOKENIZER, tiny_settings
from tests.fixtures.second_node import second_node

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(900)]

LAYERS, HIDDEN = 6, 512
TTFT_MS, TBT_MS, SAFEPOINT_MS = 60, 40, 1
WANTED_LAYERS = 3
STRICT = {
    "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY": "1",
    "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE": "1",
}


class Ranks:
    """Two ranks behind one address.

    Attributes:
        other: The part with the second rank, where that is on another node.
    """

    def __init__(
        self, part: Part, url: str, http: httpx.AsyncClient, other: ManagedProcess | None
    ) -> None:
        self.part, self.url, self.http, self.other = part, url, http, other

    async def state(self) -> dict[str, Any]:
        """What rank 0 says about the runtime."""
        info = (await self.http.get(f"{self.url}/server_info")).json()
        found: dict[str, Any] = info["internal_states"][0]["coserve"]
        return found

    async def answer(self, seed: int, num_tokens: int, *, priority: int) -> list[int]:
        """Greedy output of a prompt that no other seed shares."""
        generator = random.Random(seed)
        body = {
            "rid": new_rid(),
            "input_ids": [generator.randrange(10, 40_000) for _ in range(num_tokens)],
            "sampling_params": {"max_new_tokens": 12, "temperature": 0, "ignore_eos": True},
            "priority": priority,
        }
        reply = await self.http.post(f"{self.url}/generate", json=body)
        assert reply.status_code == 200, reply.text
        ids: list[int] = reply.json()["output_ids"]
        return ids

    async def flush(self) -> None:
        """Forget every prefix; refused for a moment after the last answer."""
        async with asyncio.timeout(30):
            while (await self.http.post(f"{self.url}/flush_cache")).status_code != 200:
                await asyncio.sleep(0.2)

    def scheduler_pids(self) -> list[int]:
        """The processes of the ranks."""
        assert self.part.pid is not None
        tops = [self.part.pid] + ([self.other.pid] if self.other is not None else [])
        family = [one for top in tops for one in psutil.Process(top).children(recursive=True)]
        found = [p for p in family if "scheduler" in " ".join(p.cmdline()) + p.name()]
        return sorted({process.pid for process in found})


TWO_NODES = pytest.mark.skipif(
    not os.environ.get("COSERVE_TWO_NODES"), reason="4 minutes, as root: COSERVE_TWO_NODES=1 asks"
)


@pytest_asyncio.fixture(params=["one node", pytest.param("two nodes", marks=TWO_NODES)])
async def ranks(
    request: pytest.FixtureRequest, engine_python: Path, tmp_path: Path
) -> AsyncIterator[Ranks]:
    model = tmp_path / "tiny-six-layers"
    script = Path(__file__).parents[1] / "fixtures" / "tiny_model.py"
    arguments = [str(TOKENIZER), str(model), str(LAYERS), str(HIDDEN)]
    subprocess.run([str(engine_python), str(script), *arguments], check=True)
    settings = replace(tiny_settings(engine_python, model), tensor_parallel=2, dtype="float32")
    environ = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "COSERVE_HOME": str(tmp_path),
        "COSERVE_POLICY": "conserve_v2",
        "COSERVE_TTFT_MS": str(TTFT_MS),
        "COSERVE_TBT_MS": str(TBT_MS),
        "COSERVE_SAFEPOINT_MS": str(SAFEPOINT_MS),
        **STRICT,
    }
    url = f"http://127.0.0.1:{settings.port}"
    with ExitStack() as stack:
        other = None
        if request.param == "two nodes":
            node = stack.enter_context(second_node())
            nodes = ("--nnodes", "2", "--dist-init-addr", f"{node.address}:{free_port()}")
            there = replace(settings, extra_args=(*nodes, "--node-rank", "1"))
            its_own = {
                "GLOO_SOCKET_IFNAME": node.other_link,
                "SGLANG_HOST_IP": node.other_address,
            }
            argv, env = engine_command(there, {**environ, **its_own})
            log = tmp_path / "second-node.log"
            command = Command("second node", tuple(node.argv(argv)), log, env=env, cwd=tmp_path)
            other = ManagedProcess(command)
            stack.callback(lambda: print(log.read_text(errors="replace")[-6000:]))
            stack.callback(other.stop)
            settings = replace(settings, extra_args=(*nodes, "--node-rank", "0"))
            environ |= {"GLOO_SOCKET_IFNAME": node.link, "SGLANG_HOST_IP": node.address}
        argv, env = engine_command(settings, environ)
        plan = PartPlan(
            "The engine",
            Command("engine", tuple(argv), tmp_path / "engine.log", env=env, cwd=tmp_path),
            answers_200(f"{url}/health"),
            ready_limit_s=240.0,
        )
        part = Part(plan, say=print, changed=lambda: None)
        await part.start()
        try:
            async with httpx.AsyncClient(timeout=120.0) as http:
                yield Ranks(part, url, http, other)
        finally:
            await part.stop()
            print((tmp_path / "engine.log").read_text(errors="replace")[-6000:])


async def profiled(ranks: Ranks) -> None:
    while (state := await ranks.state())["profile"]["state"] == "measuring":
        await asyncio.sleep(0.5)
    assert state["policy"] == "conserve_v2"


@pytest.mark.timeout(900)
async def test_stops_change_no_answer_and_a_dead_rank_takes_the_other_along(
    ranks: Ranks,
) -> None:
    await profiled(ranks)
    answers: dict[int, tuple[int, int, list[int]]] = {}
    over = asyncio.Event()

    async def rows(first_seed: int) -> None:
        """One offline row after another."""
        seed = first_seed
        while not over.is_set():
            answers[seed] = (900, -2, await ranks.answer(seed, 900, priority=-2))
            seed += 1

    async def chat() -> None:
        chance, seed = random.Random(5), 90_000
        try:
            while len(set((await ranks.state())["stop_layers"])) < WANTED_LAYERS:
                await asyncio.sleep(chance.uniform(0.0, 0.4))
                answers[seed] = (500, 0, await ranks.answer(seed, 500, priority=0))
                seed += 1
        finally:
            over.set()

    async with asyncio.TaskGroup() as group:
        for first_seed in (10_000, 20_000, 30_000):
            group.create_task(rows(first_seed))
        group.create_task(chat())
    state = await ranks.state()
    assert state["aborts"] + state["drops"] >= WANTED_LAYERS
    assert state["undone_requests"] > 0
    assert state["rejected_plans"] == 0
    print({name: state[name] for name in ("aborts", "drops", "stop_layers", "parks", "steps")})

    await ranks.flush()
    online = [seed for seed, (_, priority, _) in answers.items() if priority == 0]
    offline = [seed for seed, (_, priority, _) in answers.items() if priority < 0]
    for seed in online[:4] + offline[:8]:
        num_tokens, priority, disturbed = answers[seed]
        assert disturbed == await ranks.answer(seed, num_tokens, priority=priority), seed

    victims = ranks.scheduler_pids()
    assert len(victims) >= 2, victims
    async with asyncio.TaskGroup() as group:
        keeper = group.create_task(ranks.part.keep())
        psutil.Process(victims[-1]).kill()
        while ranks.part.num_restarts == 0:
            await asyncio.sleep(0.2)
        keeper.cancel()
    while any(psutil.pid_exists(pid) for pid in victims):  # no rank outlives the other
        await asyncio.sleep(0.1)
