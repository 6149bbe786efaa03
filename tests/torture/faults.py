"""What is done to a running installation, and what is promised meanwhile."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum

import httpx
import psutil

from tests.chaos.observer import Observer
from tests.chaos.victims import Kind, find
from tests.fixtures.clock_jump import jump
from tests.fixtures.name_server import NameServer
from tests.fixtures.small_disk import SmallDisk
from tests.torture.installation import SERVERS, TorturedInstallation
from tests.torture.stranger import Stranger

GONE_LIMIT_S = 20.0
BACK_LIMIT_S = 180.0
OUTAGE_S = (2.0, 12.0)
GONE_POLL_INTERVAL_S = 0.005
AIM_S = 20.0
TOLD_S = 0.2


class Spoils(StrEnum):
    """What a chat may come to because of a fault."""

    CUT = "cut"
    """It had begun on a gateway that died before its answer was whole."""
    ENGINE = "engine"
    """There was no engine: refused with `engine_unavailable`, or cut with an error event."""
    DATABASE = "database"
    """A gateway that had not seen the key yet could not ask for it."""


@dataclass(frozen=True)
class Fault:
    """One kind of fault.

    Attributes:
        name: What is done.
        promise: What is promised to chats and batches while it lasts.
        spoils: What chats may come to.
        weight: How often it is dealt out.
    """

    name: str
    promise: str
    spoils: frozenset[Spoils] = frozenset()
    weight: int = 2


NOTHING = "chat goes on; every line once"
NO_ENGINE = "chat is refused with its reason until the engine is back; every line once"
KEYS = "chat goes on with known keys; every line once, every token counted"

KILLS: dict[Kind, Fault] = {
    kind: Fault(f"kill -9: {kind.value}", NOTHING)
    for kind in (
        Kind.POOL_CHILD, Kind.STAGE_CHILD, Kind.DISPATCH_WORKER, Kind.STAGES_WORKER, Kind.BEAT,
        Kind.BROKER, Kind.BROKER_WIPED,
    )
} | {
    Kind.POSTGRES: Fault("kill -9: Postgres", KEYS, frozenset({Spoils.DATABASE})),
    Kind.BACKEND: Fault("kill -9: one backend of Postgres", KEYS, frozenset({Spoils.DATABASE})),
    Kind.GATEWAY: Fault(
        "kill -9: gateway", "only what had begun on it is cut; every line once",
        frozenset({Spoils.CUT}),
    ),
    Kind.WATCHER: Fault(
        "kill -9: the watcher of a part", "what it watched ends with it and comes back",
        frozenset({Spoils.CUT, Spoils.ENGINE}),
    ),
    Kind.ENGINE: Fault("kill -9: engine", NO_ENGINE, frozenset({Spoils.ENGINE})),
    Kind.MACHINE: Fault(
        "kill -9: everything but the servers", "only what had begun is cut; every line once",
        frozenset({Spoils.CUT, Spoils.ENGINE}), weight=1,
    ),
}  # fmt: skip
STOPS: dict[str, Fault] = {
    part: Fault(f"stopped: {part}", NOTHING, weight=1)
    for part in ("worker-dispatch", "worker-stages", "worker-sweep", "beat", "valkey", "gateway")
} | {
    "postgres": Fault("stopped: postgres", KEYS, frozenset({Spoils.DATABASE}), weight=1),
    "engine": Fault("stopped: engine", NO_ENGINE, frozenset({Spoils.ENGINE}), weight=1),
}
POSTGRES_AWAY = Fault("Postgres away", KEYS, frozenset({Spoils.DATABASE}))
VALKEY_AWAY = Fault("Valkey away", NOTHING)
LOST_COMMITS = Fault("answers to COMMIT lost", KEYS, frozenset({Spoils.DATABASE}), weight=3)
HUNG_BROKER = Fault("Valkey accepts and never answers", NOTHING)
BAD_ENGINES = Fault("engines without an address, or that answer other JSON or without end", NOTHING)
UNDELETABLE = Fault("expired objects that cannot be deleted", NOTHING, weight=1)
SMALL_BATCHES = Fault("a thousand one-line batches of another project", NOTHING, weight=1)
FOLLOWERS = Fault("a hundred followers of a background response", NOTHING, weight=1)
LOADS = (BAD_ENGINES, UNDELETABLE, SMALL_BATCHES, FOLLOWERS)
COLLECTED_S = 65.0
"""In which the collection has run at least once."""
SILENT_NAMES = Fault("name server silent", NOTHING)
FULL_BROKER = Fault("broker full", NOTHING)
CLOCKS = {
    Fault(f"the database's clock jumps an hour {way}", NOTHING, weight=1): jump_s
    for way, jump_s in (("on", 3600.0), ("back", -3600.0))
}
FULL_DISK = Fault("disk of the files full", "chat goes on; uploads are refused, batches wait")


@dataclass
class Span:
    """One fault that was dealt out: instants of the event loop's clock.

    Attributes:
        ended_s: When its cause was gone and the part answered again; none while it lasts.
        gateway_died_s: Between which instants the gateway died of it.
    """

    fault: Fault
    began_s: float
    ended_s: float | None = None
    gateway_died_s: tuple[float, float] | None = None


class Tormentor:
    """Deals out faults on one installation and notes them."""

    def __init__(
        self,
        installation: TorturedInstallation,
        observer: Observer,
        names: NameServer,
        disk: SmallDisk | None,
        stranger: Stranger,
        rng: random.Random,
        *,
        stop_s: float,
    ) -> None:
        self.spans: list[Span] = []
        self._installation = installation
        self._observer = observer
        self._names = names
        self._disk = disk
        self._stranger = stranger
        self._rng = rng
        self._stop_s = stop_s

    @property
    def faults(self) -> list[Fault]:
        """Those that can be dealt out here."""
        others = [POSTGRES_AWAY, VALKEY_AWAY, HUNG_BROKER, FULL_BROKER, LOST_COMMITS, SILENT_NAMES]
        others += CLOCKS
        if self._installation.fake is not None:
            others += LOADS
        stops = [one for part, one in STOPS.items() if self._may_stop(part)]
        full = [FULL_DISK] if self._disk is not None else []
        return [*KILLS.values(), *stops, *others, *full]

    def _may_stop(self, part: str) -> bool:
        return part != "engine" or self._installation.fake is not None

    async def deal(self, fault: Fault) -> None:
        """Do it, and return when it is over."""
        for kind, known in KILLS.items():
            if known is fault:
                return await self._kill(kind, fault)
        for part, known in STOPS.items():
            if known is fault:
                return await self._stop(part, fault)
        async with self._noted(fault):
            await (self._load(fault) if fault in LOADS else self._spoil(fault))
        return None

    async def _load(self, fault: Fault) -> None:
        # Another fault may last as well: what is not answered then is not made.
        async with asyncio.timeout(BACK_LIMIT_S):
            if fault is SMALL_BATCHES:
                with suppress(httpx.HTTPError):
                    await self._stranger.small_batches()
            elif fault is FOLLOWERS:
                with suppress(httpx.HTTPError):
                    await self._stranger.followers()
            elif fault is UNDELETABLE:
                async with self._stranger.undeletable_objects():
                    await asyncio.sleep(COLLECTED_S)
            else:
                async with self._stranger.bad_engines():
                    await asyncio.sleep(self._rng.uniform(*OUTAGE_S))

    @asynccontextmanager
    async def _noted(self, fault: Fault) -> AsyncIterator[Span]:
        span = Span(fault, _now_s())
        self.spans.append(span)
        try:
            yield span
        finally:
            span.ended_s = _now_s()

    async def _spoil(self, fault: Fault) -> None:
        servers = self._installation.servers
        pause_s = self._rng.uniform(*OUTAGE_S)
        try:
            if fault is POSTGRES_AWAY:
                servers.to_postgres.shut()
            elif fault is VALKEY_AWAY:
                servers.to_valkey.shut()
            elif fault is HUNG_BROKER:
                servers.to_valkey.flows.clear()
            elif fault is LOST_COMMITS:
                servers.to_postgres.kind, servers.to_postgres.share = "torture", 0.3
            elif fault is SILENT_NAMES:
                self._names.silent = True
            elif fault is FULL_BROKER:
                await asyncio.to_thread(servers.give_broker_room, some=False)
            elif fault in CLOCKS:
                await jump(self._observer.ask, CLOCKS[fault])
            elif self._disk is not None:
                await asyncio.to_thread(self._disk.fill)
            await asyncio.sleep(pause_s)
        finally:
            servers.to_postgres.open = servers.to_valkey.open = True
            servers.to_valkey.flows.set()
            servers.to_postgres.share = 0.0
            self._names.silent = False
            await asyncio.to_thread(servers.give_broker_room, some=True)
            if self._disk is not None:
                self._disk.clear()

    # --- deaths -------------------------------------------------------------------------------

    async def _kill(self, kind: Kind, fault: Fault) -> None:
        victims = await self._aim(kind)
        gateway = self._installation.part("gateway")
        if not victims:
            return
        async with self._noted(fault) as span:
            watched = self._installation.watchers().get("gateway") in victims
            if kind is Kind.MACHINE:
                await asyncio.to_thread(self._installation.kill_machine)
            else:
                self._installation.kill(victims)
            dies = {Kind.MACHINE, Kind.GATEWAY}
            if gateway and (kind in dies or (kind is Kind.WATCHER and watched)):
                await _until_gone(gateway)
                # What was connected by then is told by the loop a moment later; no gateway starts
                # to listen as soon as that.
                await asyncio.sleep(TOLD_S)
                span.gateway_died_s = (span.began_s, _now_s())
            await self._bring_back(kind)

    async def _aim(self, kind: Kind) -> list[int]:
        """The victims; none where there is no such process for long."""
        until_s = _now_s() + AIM_S
        while not (victims := find(kind, self._installation, self._rng)) and _now_s() < until_s:
            await asyncio.sleep(0.1)
        return victims

    async def _bring_back(self, kind: Kind) -> None:
        servers, fake = self._installation.servers, self._installation.fake
        match kind:
            case Kind.POSTGRES:
                await asyncio.sleep(self._rng.uniform(0, 3))
                await asyncio.to_thread(servers.start, "postgres")
            case Kind.BROKER | Kind.BROKER_WIPED:
                if kind is Kind.BROKER_WIPED:
                    servers.wipe_broker()
                await asyncio.to_thread(servers.start, "valkey")
            case Kind.MACHINE:
                await asyncio.to_thread(self._installation.start, BACK_LIMIT_S)
            case Kind.ENGINE if fake is not None:
                await asyncio.to_thread(fake.reap)
                await asyncio.sleep(self._rng.uniform(0, 3))
                await asyncio.to_thread(fake.start)
        await self._until_ready()

    async def _until_ready(self) -> None:
        async with asyncio.timeout(BACK_LIMIT_S):
            while self._installation.parts_down() or not await self._observer.engine_answers():
                await asyncio.sleep(0.1)

    # --- stops --------------------------------------------------------------------------------

    async def _stop(self, part: str, fault: Fault) -> None:
        whole = part in SERVERS or self._rng.random() < 0.5
        pids = self._installation.everything_of(part) if whole else self._installation.part(part)
        if not pids:
            return
        async with self._noted(fault):
            try:
                _signal(pids, signal.SIGSTOP)
                await asyncio.sleep(self._stop_s)
            finally:
                _signal(pids, signal.SIGCONT)
            await self._until_ready()


async def _until_gone(pids: Sequence[int]) -> None:
    async with asyncio.timeout(GONE_LIMIT_S):
        while any(map(_lives, pids)):
            await asyncio.sleep(GONE_POLL_INTERVAL_S)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
