"""The tasks: each runs one stage and knows nothing else. Nobody imports this module but Celery."""

from __future__ import annotations

import logging
import sys
from typing import Any

from celery.signals import (
    setup_logging,
    worker_init,
    worker_process_init,
    worker_process_shutdown,
    worker_shutting_down,
)

from batch import queue
from batch.settings import BatchSettings
from batch.worker.app import TASK_SOFT_LIMIT_S, TASK_TIME_LIMIT_S, app
from batch.worker.drain import DrainPipe
from batch.worker.stages import Stages
from service import log_lines, tracing
from service.garbage import freeze_gc
from store.schema import WrongDatabase

_DRAIN = DrainPipe()
_STAGES = Stages(app, BatchSettings(), _DRAIN)
_LIMITS = {"soft_time_limit": TASK_SOFT_LIMIT_S, "time_limit": TASK_TIME_LIMIT_S}


@app.task(name=queue.STAGES)
def stages() -> None:
    _STAGES.run(_STAGES.stages())


@app.task(name=queue.DELIVER)
def deliver() -> None:
    _STAGES.run(_STAGES.deliver())


@app.task(name=queue.SWEEP, **_LIMITS)
def sweep() -> None:
    _STAGES.run(_STAGES.sweep())


@app.task(name=queue.GC_FILES, **_LIMITS)
def gc_files() -> None:
    _STAGES.run(_STAGES.gc_files())


@app.task(name=queue.DISPATCH)
def dispatch() -> None:
    _STAGES.run(_STAGES.dispatch())


@worker_init.connect
def _check_schema(**_: Any) -> None:
    """A worker without its tables says so and ends, before it takes a task."""
    try:
        _STAGES.run(_STAGES.check_schema())
    except WrongDatabase as wrong:
        raise SystemExit(str(wrong)) from None
    finally:
        _STAGES.close()  # before the pool is forked


@worker_shutting_down.connect
def _on_shutdown(**_: Any) -> None:
    _DRAIN.signal()


@worker_process_init.connect
def _on_child(**_: Any) -> None:
    _DRAIN.enter_child()
    freeze_gc()
    tracing.start(_part())


@worker_process_shutdown.connect
def _on_child_end(**_: Any) -> None:
    _STAGES.close()
    tracing.stop()


@setup_logging.connect
def _on_logging(loglevel: int, **_: Any) -> None:
    log_lines.configure(_part(), BatchSettings().log_format, loglevel)
    # A sweep every few seconds is not news; failures still are.
    for name in ("celery.app.trace", "celery.worker.strategy"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _part() -> str:
    """What this process is called: `worker-dispatch@%h` names a worker, beat has no name."""
    given = (word for word in sys.argv if word.startswith("--hostname="))
    return next(given, "--hostname=beat@").removeprefix("--hostname=").partition("@")[0]
