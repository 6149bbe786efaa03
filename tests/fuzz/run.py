"""A run: rounds of requests beside a batch; after each one the engine lives and holds nothing."""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from operator import ge
from pathlib import Path
from typing import Any, Final

import httpx

from tests.chaos.installation import Installation
from tests.chaos.suite import DEFAULT_MODEL, REAL_START_LIMIT_S
from tests.fixtures.supervised import ROOT
from tests.fuzz.asking import Caller
from tests.fuzz.bodies import Batch, Bodies, Sent
from tests.fuzz.bystander import LONGEST_WAIT_S, Bystander
from tests.fuzz.minimal import minimal
from tests.fuzz.rows import run_batch
from tests.soak.run import STRICT

SETTINGS: Final = {
    "COSERVE_MODEL": str(DEFAULT_MODEL),
    "COSERVE_ENGINE_ARGS": "--max-total-tokens 4096 --max-running-requests 16",
    "COSERVE_WEBHOOK_NETWORKS": "127.0.0.0/8",
    "COSERVE_PROFILE_DIR": str(ROOT / ".coserve/profiles"),
}
"""Little memory and few slots: what one request leaves behind is soon missed."""

NUM_REQUESTS: Final = 40
"""Of a round."""
NUM_ROWS: Final = 12
NUM_CALLERS: Final = 6
IDLE_LIMIT_S: Final = 120.0
BACK_LIMIT_S: Final = 240.0
DIES_WITHIN_S: Final = 2.0


@dataclass(frozen=True)
class Finding:
    """What was found, and how to find it again.

    Attributes:
        number: Of the request; None where it is not one alone.
    """

    what: str
    about: str
    number: int | None = None

    def __str__(self) -> str:
        return f"{self.what}\n  {self.about}"


class Fuzzer:
    """Rounds against one running stack.

    Attributes:
        findings: By what they are about, so that one fault is told once.
        waits_s: The longest of another caller in each round, for any event of its streams.
    """

    def __init__(
        self, stack: Installation, caller: Caller, bodies: Bodies, bystander: Bystander
    ) -> None:
        self._stack = stack
        self._caller = caller
        self._bodies = bodies
        self._bystander = bystander
        self._pid = stack.part("engine")
        self._most = (0, 0)
        self._num_tracebacks: dict[Path, int] = {}
        self._last: dict[int, Sent] = {}
        self.findings: dict[str, Finding] = {}
        self.num_requests = 0
        self.waits_s: list[float] = []

    def told(self) -> str:
        """How far it is."""
        waited_s = max(self.waits_s, default=0.0)
        return f"{self.num_requests} requests; another caller waited {waited_s:.1f} s at most"

    async def start(self) -> None:
        """Learn what the idle engine has free."""
        await self._check_idle("nothing but the start")
        self._tracebacks()

    async def by_hand(self) -> None:
        """Send all that were written by hand."""
        for numbers, batch in self._bodies.rounds_by_hand(NUM_REQUESTS):
            await self.round(numbers, batch)
            print(self.told(), flush=True)

    async def by_chance(self, first: int) -> None:
        """Send the requests from that number on, and one batch beside them."""
        numbers = range(first, first + NUM_REQUESTS)
        await self.round(numbers, self._bodies.rows(first, NUM_ROWS))

    async def round(self, numbers: Sequence[int], batch: Batch) -> None:
        """Send requests, and one batch beside them, while somebody else reads streams."""
        waiting = [self._bodies.request(number) for number in numbers]
        which = f"requests {numbers[0]} to {numbers[-1]}"
        self.num_requests += len(waiting)
        told: list[Finding] = []
        waiting.reverse()
        self._last.clear()
        async with asyncio.TaskGroup() as beside:
            reading = beside.create_task(self._bystander.read())
            async with asyncio.TaskGroup() as group:
                rows = group.create_task(run_batch(self._caller, *batch))
                for _ in range(NUM_CALLERS):
                    group.create_task(self._send_all(waiting, told))
            reading.cancel()
        told += [Finding(what, about) for what, about in rows.result()]
        if self._died():
            await self._name_culprit(which)
            return
        waited_s, odd = self._bystander.take()
        told += [Finding(f"another caller's stream: {one}", which) for one in odd]
        if waited_s > LONGEST_WAIT_S:
            told.append(Finding("another caller waited too long", f"{waited_s:.1f} s, {which}"))
        self.waits_s.append(waited_s)
        for finding in told:
            await self._add(finding)
        await self._check_idle(which)
        for log in self._tracebacks():
            said = log.read_text(errors="replace").rpartition("Traceback")[2][:3000]
            about = f"{log.name} of {which}: {said}"
            raised = re.findall(r"^[\w.]+(?:Error|Exception)\b", said, re.MULTILINE)
            await self._add(Finding(f"a traceback in {log.name}: {raised[:1]}", about))

    async def one(self, number: int) -> None:
        """Send one request alone and print its answer."""
        sent = self._bodies.request(number)
        print(sent, flush=True)
        answer = await self._caller.ask(sent)
        print(answer.status, answer.content[:4000])
        for fault in answer.faults:
            await self._add(Finding(fault, str(sent), number))
        await asyncio.sleep(DIES_WITHIN_S)
        if self._died():
            await self._add(Finding("the engine died", str(sent), number))

    async def _send_all(self, waiting: list[Sent], told: list[Finding]) -> None:
        while waiting and not self._died():
            sent = waiting.pop()
            self._last[sent.number] = sent
            answer = await self._caller.ask(sent)
            about = f"{sent}\n  was answered {answer.content[:1000]!r}"
            route = f"{sent.method} {sent.template}"
            told += [Finding(f"{route}: {f}", about, sent.number) for f in answer.faults]

    async def _add(self, finding: Finding) -> None:
        if finding.what in self.findings:
            return
        self.findings[finding.what] = finding
        print(f"found: {finding}", flush=True)
        if finding.number is None:
            return
        sent = self._bodies.request(finding.number)
        if sent.body is not None:
            fault = finding.what.partition(": ")[2]
            smaller = await minimal(self._caller, sent, fault)
            print(f"  with less: {smaller}", flush=True)

    # --- The engine.

    def _died(self) -> bool:
        return self._stack.part("engine") != self._pid

    async def _back(self) -> None:
        """Wait until the engine answers again."""
        async with httpx.AsyncClient(base_url=self._stack.url) as http:
            async with asyncio.timeout(BACK_LIMIT_S):
                while (
                    await http.get("/statusz")
                ).status_code != 200 or not self._stack.engine_port:
                    await asyncio.sleep(1.0)
        self._pid = self._stack.part("engine")

    async def _name_culprit(self, which: str) -> None:
        """After a death: each of the round's newest requests alone, until one ends the engine."""
        log = (self._stack.home / "log/engine.log").read_text(errors="replace")
        last_words = log.rpartition("Traceback")[2][-3000:]
        await self._back()
        for sent in list(self._last.values())[-2 * NUM_CALLERS :]:
            await self._caller.ask(sent)
            await asyncio.sleep(DIES_WITHIN_S)
            if self._died():
                await self._back()
                finding = Finding(
                    f"the engine died of request {sent.number}", f"{sent}", sent.number
                )
                break
        else:
            among = f"the engine died among {which}, or the rows beside them"
            finding = Finding(among, last_words)
        self.findings[finding.what] = finding
        print(f"found: {finding}\n  {last_words}", flush=True)
        self._tracebacks()

    async def _check_idle(self, after: str) -> None:
        """When nothing is asked, every page and slot is free, and nothing lives in the engine."""
        until_s = asyncio.get_running_loop().time() + IDLE_LIMIT_S
        while True:
            state = await self._state()
            free = (state["free_pages"] + state["evictable_pages"], state["free_slots"])
            live = state["live"]
            held = live["waiting"] or live["running"] or state.get("holding")
            if not held and all(map(ge, free, self._most)):
                self._most = free
                return
            if self._died():
                await self._back()
                await self._add(Finding(f"the idle engine died after {after}", str(state)))
                return
            if asyncio.get_running_loop().time() > until_s:
                what = f"(pages, slots) free {free} of {self._most} after {after}"
                await self._add(Finding(what, f"live: {live}"))
                self._most = free
                return
            await asyncio.sleep(0.5)

    async def _state(self) -> dict[str, Any]:
        async with httpx.AsyncClient(timeout=60) as http:
            info = await http.get(f"http://127.0.0.1:{self._stack.engine_port}/server_info")
        state: dict[str, Any] = info.json()["internal_states"][0]["coserve"]
        return state

    def _tracebacks(self) -> list[Path]:
        """The logs that have more tracebacks than when they were last looked at."""
        found = []
        for log in sorted((self._stack.home / "log").glob("*.log")):
            num = log.read_text(errors="replace").count("Traceback")
            if num > self._num_tracebacks.get(log, 0):
                found.append(log)
            self._num_tracebacks[log] = num
        return found


async def _key_of_project(http: httpx.AsyncClient, admin_key: str) -> str:
    name = {"name": "fuzz"}
    headers = {"authorization": f"Bearer {admin_key}"}
    made = await http.post("/v1/organization/projects", json=name, headers=headers)
    path = f"/v1/organization/projects/{made.json()['id']}/api_keys"
    key: str = (await http.post(path, json=name, headers=headers)).json()["value"]
    return key


@asynccontextmanager
async def _fuzzer(seed: int) -> AsyncIterator[Fuzzer]:
    folder = Path(tempfile.mkdtemp(prefix="csf-"))
    stack = Installation(folder / "home", None, **STRICT, **SETTINGS)
    try:
        await asyncio.to_thread(stack.start, REAL_START_LIMIT_S)
        async with httpx.AsyncClient(base_url=stack.url) as http:
            document = (await http.get("/openapi.json")).json()
            key, other = [await _key_of_project(http, stack.key) for _ in range(2)]
        caller = Caller(stack.url, (key, stack.key), frozenset(document["paths"]))
        bystander = Bystander(stack.url, other, DEFAULT_MODEL.name)
        fuzzer = Fuzzer(stack, caller, Bodies(document, DEFAULT_MODEL.name, seed), bystander)
        try:
            await fuzzer.start()
            yield fuzzer
        finally:
            await caller.close()
    finally:
        await asyncio.to_thread(stack.stop)
        shutil.rmtree(folder, ignore_errors=True)


async def fuzz(
    seed: int, limit_s: float, only: int | None = None, *, by_hand: bool = False
) -> list[Finding]:
    """Send requests of a seed for so long; or one alone; or all that were written by hand."""
    async with _fuzzer(seed) as fuzzer:
        if only is not None:
            await fuzzer.one(only)
            return list(fuzzer.findings.values())
        if by_hand:
            await fuzzer.by_hand()
            return list(fuzzer.findings.values())
        until_s = asyncio.get_running_loop().time() + limit_s
        first = 0
        while asyncio.get_running_loop().time() < until_s:
            await fuzzer.by_chance(first)
            first += NUM_REQUESTS
            print(fuzzer.told(), flush=True)
        return list(fuzzer.findings.values())
