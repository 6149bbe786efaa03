"""One run of the chaos suite: a living installation, batches, deaths, and the proof."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.deaths import Death, Reaper
from tests.chaos.engine import EngineProcess, FakeEngineProcess, VllmProcess
from tests.chaos.feeder import Feeder
from tests.chaos.installation import Installation
from tests.chaos.observer import Observer
from tests.chaos.proof import AUDIT, Findings, prove, wait_until_over
from tests.chaos.victims import Kind
from tests.fixtures.supervised import ROOT
from tests.fixtures.vllm import MODEL as VLLM_MODEL

DEFAULT_MODEL = ROOT / ".coserve/models/SmolLM2-135M-Instruct"
MODELS = {"fake": "fake-model", "real": DEFAULT_MODEL.name, "vllm": VLLM_MODEL}
REAL_START_LIMIT_S = 300.0


@dataclass(frozen=True)
class Setting:
    """How a run is set.

    Attributes:
        engine: `fake`; `real`, the supervised one with the default model; or `vllm`, a real vLLM.
        latency_ms: How long the fake engine takes for a line.
        max_running: How many lines it works on at once.
        max_tokens: Longest answer asked of a real engine.
        real_in_flight: Lines at the real engine at once. With its usual 64 running on two cores a
            line takes most of a minute: what is measured would be that, and not the recovery.
    """

    seed: int
    num_lines: int = 2000
    latency_ms: float = 400.0
    max_running: int = 32
    engine: str = "fake"
    max_tokens: int = 32
    real_in_flight: int = 16

    @property
    def is_fake(self) -> bool:
        """Whether lines cost nothing, and each has an answer that is known."""
        return self.engine == "fake"


@asynccontextmanager
async def installed(setting: Setting) -> AsyncIterator[Installation]:
    """An installation of its own that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="csx-"))
    engine: EngineProcess | None = None
    given = {}
    if setting.engine == "real":
        given["COSERVE_MODEL"] = str(DEFAULT_MODEL)
        given["COSERVE_BATCH_MAX_IN_FLIGHT"] = str(setting.real_in_flight)
    elif setting.engine == "vllm":
        given["COSERVE_BATCH_MAX_IN_FLIGHT"] = str(setting.real_in_flight)
        engine = VllmProcess(folder)
    else:
        engine = FakeEngineProcess(
            folder, latency_ms=setting.latency_ms, max_running=setting.max_running
        )
    installation = Installation(folder / "home", engine, **given)
    try:
        await asyncio.to_thread(
            installation.start, 120.0 if setting.is_fake else REAL_START_LIMIT_S
        )
        yield installation
    finally:
        await asyncio.to_thread(installation.stop)
        shutil.rmtree(folder, ignore_errors=True)


async def run(setting: Setting, kinds: Sequence[Kind]) -> tuple[list[Death], Findings]:
    """Deal out the deaths while batches run; what they did, and what is left at the end."""
    rng = random.Random(setting.seed)
    deaths: list[Death] = []
    async with installed(setting) as installation:
        observer = Observer(installation)
        if not setting.is_fake:
            await observer.ask(AUDIT)
        feeder = Feeder(
            installation,
            observer,
            model=MODELS[setting.engine],
            num_lines=setting.num_lines,
            max_tokens=None if setting.is_fake else setting.max_tokens,
        )
        reaper = Reaper(installation, observer, rng)
        try:
            async with asyncio.TaskGroup() as group:
                feeding = group.create_task(feeder.run())
                for kind in kinds:
                    death = await reaper.kill(kind)
                    deaths.append(death)
                    print(death.told(), flush=True)
                feeder.stop.set()
                await feeding
                await wait_until_over(feeder)
            journal = installation.fake.journal if installation.fake is not None else None
            findings = await prove([feeder], observer, journal)
        except BaseException:
            _save_logs(installation)
            raise
        finally:
            await observer.close()
        if findings.faults:
            _save_logs(installation)
    return deaths, findings


def _save_logs(installation: Installation) -> None:
    """What the parts said, kept where it outlives the installation."""
    kept = Path(tempfile.mkdtemp(prefix="chaos-logs-"))
    shutil.copytree(installation.home / "log", kept / "log", dirs_exist_ok=True)
    (kept / "up.out").write_text(installation.said())
    print(f"logs are kept in {kept}", flush=True)
