"""How the worker processes are started: argument lists for a supervisor or a container."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from batch.queue import DELIVER, DISPATCH, GC_FILES, STAGES, SWEEP
from batch.settings import BatchSettings
from batch.worker.growth import DISPATCH_WORKER, FIRST_PROCESSES

APP = "batch.worker.app"
NUM_STAGE_PROCESSES = 4
"""One for webhook deliveries, which wait for strangers; one for the collection; one for the long
stages of a project (batch/worker/long_stage_lock.py). So one is left for everybody else."""


@dataclass(frozen=True)
class Command:
    """One process to start.

    Attributes:
        name: What to call it in logs.
        argv: Program and arguments.
        env: Variables to add to the environment.
    """

    name: str
    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)


def worker_commands(settings: BatchSettings) -> list[Command]:
    """The workers: no stage ever waits behind a dispatcher, nor the sweep behind long stages.

    That of the dispatchers grows with the engines it serves (batch/worker/growth.py).
    """
    del settings  # none of these depends on any
    return [
        _worker(DISPATCH_WORKER, FIRST_PROCESSES, DISPATCH),
        _worker("worker-stages", NUM_STAGE_PROCESSES, STAGES, DELIVER, GC_FILES),
        _worker("worker-sweep", 1, SWEEP),
    ]


def beat_command(settings: BatchSettings) -> Command:
    """The clock that asks for sweeps. Two of them do no harm."""
    del settings  # the schedule does not depend on any
    return Command("beat", (*_celery(), "beat", "--loglevel=WARNING", "--pidfile="))


def _worker(name: str, num_processes: int, *tasks: str) -> Command:
    # Gossip, mingle and the worker heartbeat talk to other workers; nobody here listens.
    argv = (
        *_celery(),
        "worker",
        f"--queues={','.join(tasks)}",
        f"--concurrency={num_processes}",
        f"--hostname={name}@%h",
        "--pool=prefork",
        "--loglevel=INFO",
        "--without-gossip",
        "--without-mingle",
        "--without-heartbeat",
    )
    return Command(name, argv)


def _celery() -> tuple[str, ...]:
    return (sys.executable, "-m", "celery", "--quiet", f"--app={APP}")
