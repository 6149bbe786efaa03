"""The kinds of death, and in which order a run deals them out."""

from __future__ import annotations

import random
from enum import StrEnum

from tests.chaos.installation import Installation


class Kind(StrEnum):
    """Who is killed, or what else is done to a part."""

    POOL_CHILD = "pool child that dispatches"
    STAGE_CHILD = "pool child of the stages"
    DISPATCH_WORKER = "dispatch worker"
    STAGES_WORKER = "stages worker"
    BEAT = "beat"
    BROKER = "broker"
    BROKER_WIPED = "broker, wiped"
    POSTGRES = "Postgres"
    BACKEND = "one backend of Postgres"
    GATEWAY = "gateway"
    WATCHER = "the watcher of a part"
    ENGINE = "engine"
    MACHINE = "whole machine"
    CLOCK_ON = "no process: the clock jumps an hour on"
    CLOCK_BACK = "no process: the clock jumps an hour back"


JUMPS_S = {Kind.CLOCK_ON: 3600.0, Kind.CLOCK_BACK: -3600.0}


_WEIGHTS = {
    Kind.POOL_CHILD: 5,
    Kind.STAGE_CHILD: 1,
    Kind.DISPATCH_WORKER: 3,
    Kind.STAGES_WORKER: 2,
    Kind.BEAT: 2,
    Kind.BROKER: 2,
    Kind.BROKER_WIPED: 2,
    Kind.POSTGRES: 3,
    Kind.BACKEND: 2,
    Kind.GATEWAY: 2,
    Kind.WATCHER: 2,
    Kind.ENGINE: 4,
    Kind.MACHINE: 1,
    Kind.CLOCK_ON: 2,
    Kind.CLOCK_BACK: 2,
}
_REAL_WEIGHTS = {
    Kind.ENGINE: 4,
    Kind.POOL_CHILD: 2,
    Kind.DISPATCH_WORKER: 1,
    Kind.POSTGRES: 1,
    Kind.BACKEND: 1,
    Kind.BROKER_WIPED: 1,
    Kind.GATEWAY: 1,
    Kind.WATCHER: 1,
    Kind.MACHINE: 1,
}
_PARTS = {
    Kind.DISPATCH_WORKER: "worker-dispatch",
    Kind.STAGES_WORKER: "worker-stages",
    Kind.BEAT: "beat",
    Kind.BROKER: "valkey",
    Kind.BROKER_WIPED: "valkey",
    Kind.POSTGRES: "postgres",
    Kind.GATEWAY: "gateway",
    Kind.ENGINE: "engine",
    Kind.CLOCK_ON: "postgres",
    Kind.CLOCK_BACK: "postgres",
}


def plan(num_kills: int, rng: random.Random, *, real: bool = False) -> list[Kind]:
    """So many deaths in random order, every kind in proportion to its weight.

    A short run has the frequent kinds; one with at least as many kills as there are kinds has all.
    With the real engine, which takes a minute to come back, every third is its own.
    """
    weights = _REAL_WEIGHTS if real else _WEIGHTS
    kinds = sorted(weights, key=lambda kind: -weights[kind])
    dealt: dict[Kind, int] = dict.fromkeys(kinds, 0)
    planned = []
    for _ in range(num_kills):
        kind = min(kinds, key=lambda one: dealt[one] / weights[one])
        dealt[kind] += 1
        planned.append(kind)
    rng.shuffle(planned)
    return planned


def find(kind: Kind, installation: Installation, rng: random.Random) -> list[int]:
    """The process ids to kill now; none while there is no such process."""
    match kind:
        case Kind.MACHINE:
            return installation.everything()
        case Kind.POOL_CHILD:
            return installation.dispatching_children()
        case Kind.STAGE_CHILD:
            children = installation.children("worker-stages")
        case Kind.BACKEND:
            children = installation.children("postgres")
        case Kind.WATCHER:
            children = sorted(installation.watchers().values())
        case _:
            return installation.part(_PARTS[kind])
    return [rng.choice(children)] if children else []
