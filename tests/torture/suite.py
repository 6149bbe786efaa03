"""One run of the torture: three projects, people who chat, faults at random, and the proof."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from store.session import Database
from tests.chaos.engine import FakeEngineProcess
from tests.chaos.feeder import Feeder
from tests.chaos.observer import Observer
from tests.chaos.proof import AUDIT, Findings
from tests.chaos.suite import DEFAULT_MODEL, REAL_START_LIMIT_S
from tests.chaos.victims import Kind
from tests.fixtures.name_server import NameServer, name_server
from tests.fixtures.receiver import Receiver, receiving
from tests.fixtures.small_disk import SmallDisk, may_mount, small_disk
from tests.torture.chats import ChatsSeen, Chatter
from tests.torture.faults import KILLS, Fault, Span, Tormentor
from tests.torture.installation import TorturedInstallation
from tests.torture.proof import find_faults
from tests.torture.servers import Servers, servers
from tests.torture.stranger import Stranger
from tests.torture.tenants import NAMES, Tenant, new_project

START_LIMIT_S = 120.0
MOST_AT_ONCE = 2
"""Faults that last at the same time."""
PAUSE_S = (1.0, 6.0)
DISK_MIB = 512


@dataclass(frozen=True)
class Setting:
    """How a run is set.

    Attributes:
        duration_s: How long faults are dealt out.
        faults: Only these, by name, in this order, one after the other; none: all at random.
        num_lines: Of one batch.
        num_chatters: People who chat in each project.
        stop_s: How long a process is stopped.
        real: The supervised real engine with the default model instead of the fake one.
    """

    seed: int
    duration_s: float = 3600.0
    faults: tuple[str, ...] = ()
    num_lines: int = 400
    num_chatters: int = 3
    stop_s: float = 30.0
    latency_ms: float = 200.0
    max_running: int = 64
    real: bool = False


@dataclass
class Run:
    """What a run came to."""

    spans: Sequence[Span]
    chats: ChatsSeen
    findings: Findings
    broken: dict[str, int]


@dataclass
class _Stage:
    """Everything around the installation."""

    installation: TorturedInstallation
    servers: Servers
    names: NameServer
    receiver: Receiver
    disk: SmallDisk | None


@asynccontextmanager
async def _staged(setting: Setting) -> AsyncIterator[_Stage]:
    folder = Path(tempfile.mkdtemp(prefix="cst-"))
    folder.chmod(0o755)  # Postgres may run as another user
    async with AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        names = await stack.enter_async_context(name_server())
        receiver = await stack.enter_async_context(receiving())
        backends = await stack.enter_async_context(servers(folder / "servers"))
        disk = None
        if may_mount():
            disk = stack.enter_context(small_disk(folder / "home/files", size_mib=DISK_MIB))
        fake = None
        if not setting.real:
            fake = FakeEngineProcess(
                folder, latency_ms=setting.latency_ms, max_running=setting.max_running
            )
        given = {"COSERVE_MODEL": str(DEFAULT_MODEL)} if setting.real else {}
        installation = TorturedInstallation(folder / "home", fake, backends, names.address, **given)
        stack.push_async_callback(asyncio.to_thread, installation.stop)
        limit_s = REAL_START_LIMIT_S if setting.real else START_LIMIT_S
        await asyncio.to_thread(installation.start, limit_s)
        try:
            yield _Stage(installation, backends, names, receiver, disk)
        except BaseException:
            keep_logs(installation)
            raise


async def run(setting: Setting) -> Run:
    """Deal out faults while everybody works; what they did, and what is left at the end."""
    rng = random.Random(setting.seed)
    seen = ChatsSeen()
    async with _staged(setting) as stage:
        observer = Observer(stage.installation)
        if setting.real:
            await observer.ask(AUDIT)
        tenants = await _tenants(setting, stage, observer)
        stranger = await Stranger.new(stage.installation, observer)
        tormentor = Tormentor(
            stage.installation, observer, stage.names, stage.disk, stranger, rng,
            stop_s=setting.stop_s,
        )  # fmt: skip
        stop = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                for tenant in tenants:
                    group.create_task(tenant.run())
                    for _ in range(setting.num_chatters):
                        chatter = Chatter(
                            stage.installation.url, tenant.feeder.model, tenant.name,
                            tenant.feeder.key, seen, random.Random(rng.random()),
                            real=setting.real,
                        )  # fmt: skip
                        group.create_task(chatter.run(stop))
                await _torment(setting, tormentor, rng)
                stop.set()
                for tenant in tenants:
                    tenant.feeder.stop.set()
            fake = stage.installation.fake
            findings, broken = await find_faults(
                tenants, observer, stage.receiver, fake.journal if fake else None,
                stage.installation.home / "files",
            )  # fmt: skip
        finally:
            await observer.close()
        if broken:
            keep_logs(stage.installation)
        return Run(tormentor.spans, seen, findings, broken)


async def _tenants(setting: Setting, stage: _Stage, observer: Observer) -> list[Tenant]:
    database = Database(stage.servers.direct_url)
    tenants = []
    try:
        for name in NAMES:
            project_id, key = await new_project(database, name)
            feeder = Feeder(
                stage.installation,
                observer,
                model=DEFAULT_MODEL.name if setting.real else "fake-model",
                num_lines=setting.num_lines,
                max_tokens=16 if setting.real else None,
                name=f"{name}-",
                key=key,
            )
            tenant = Tenant(name, project_id, feeder)
            await tenant.hear(stage.receiver)
            tenants.append(tenant)
    finally:
        await database.dispose()
    return tenants


async def _torment(setting: Setting, tormentor: Tormentor, rng: random.Random) -> None:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    if setting.faults:
        by_name = {one.name: one for one in tormentor.faults}
        for name in setting.faults:
            await tormentor.deal(by_name[name])
        return
    places = asyncio.Semaphore(MOST_AT_ONCE)
    lasting: set[str] = set()
    async with asyncio.TaskGroup() as group:
        for fault in _dealt(tormentor.faults, rng):
            if loop.time() - began_s > setting.duration_s:
                return
            await asyncio.sleep(rng.uniform(*PAUSE_S))
            if fault.name in lasting:
                continue
            # A machine goes down alone: it would take what else lasts with it.
            num_places = MOST_AT_ONCE if fault is KILLS[Kind.MACHINE] else 1
            for _ in range(num_places):
                await places.acquire()
            print(f"{loop.time() - began_s:7.1f} s  {fault.name}", flush=True)
            lasting.add(fault.name)

            async def deal(fault: Fault = fault, num_places: int = num_places) -> None:
                try:
                    await tormentor.deal(fault)
                finally:
                    lasting.discard(fault.name)
                    for _ in range(num_places):
                        places.release()

            group.create_task(deal())


def _dealt(faults: Sequence[Fault], rng: random.Random) -> Iterator[Fault]:
    """Without end, shuffled anew each time all have come."""
    whole = [fault for fault in faults for _ in range(fault.weight)]
    while True:
        yield from rng.sample(whole, len(whole))


def keep_logs(installation: TorturedInstallation) -> None:
    """What the parts said, kept where it outlives the installation."""
    kept = Path(tempfile.mkdtemp(prefix="torture-logs-"))
    shutil.copytree(installation.home / "log", kept / "log", dirs_exist_ok=True)
    (kept / "up.out").write_text(installation.said())
    print(f"logs are kept in {kept}", flush=True)
