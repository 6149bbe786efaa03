"""The Celery app: `celery -A batch.worker.app worker|beat`.

Settings as measured to survive kill -9 of a pool child, of the worker and of the broker. The
visibility timeout is longer than any stage may take, so that no stage runs twice at once for
that reason; `dispatch` is acknowledged at its start (its message need not survive: the sweep
asks again within seconds) and so may take as long as its calls do.
"""

from __future__ import annotations

import warnings
from typing import Final

from celery import Celery
from celery.platforms import SecurityWarning

from batch.queue import GC_FILES, SWEEP, TASK_ROUTES
from batch.settings import BatchSettings, CommonSettings
from batch.worker.growth import Growth

# As whom a worker runs is the operator's choice; the warning is no line of a log.
warnings.filterwarnings("ignore", category=SecurityWarning)

STAGE_TIME_LIMIT_S: Final = 110
STAGE_SOFT_LIMIT_S: Final = 90
VISIBILITY_TIMEOUT_S: Final = 120

SWEEP_PERIOD_S: Final = 3.0
GC_PERIOD_S: Final = 600.0


def make_app(settings: CommonSettings | None = None) -> Celery:
    """A configured app. Connects to nothing until it is used."""
    settings = settings or BatchSettings()
    broker = settings.broker.celery()
    app = Celery("coserve", set_as_current=False)
    app.conf.update(
        # Not `broker_url`: Celery's commands would put the environment's BROKER_URL in its place.
        broker_read_url=broker["broker_url"],
        broker_write_url=broker["broker_url"],
        broker_use_ssl=broker["broker_use_ssl"],
        include=["batch.worker.tasks"],
        task_routes=TASK_ROUTES,
        task_default_queue="stages",
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        task_time_limit=None,
        worker_prefetch_multiplier=1,
        worker_cancel_long_running_tasks_on_connection_loss=True,
        worker_send_task_events=False,
        worker_redirect_stdouts=False,
        worker_proc_alive_timeout=30.0,
        worker_lost_wait=1.0,
        worker_consumer="batch.worker.consumer:Consumer",
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "visibility_timeout": VISIBILITY_TIMEOUT_S,
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            "global_keyprefix": "coserve:",
            "socket_timeout": 30,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
            **broker["options"],
        },
        beat_schedule={
            "sweep": _every(SWEEP, SWEEP_PERIOD_S),
            "gc_files": _every(GC_FILES, GC_PERIOD_S),
        },
        # In memory: nothing in the schedule needs to be remembered over a restart.
        beat_scheduler="celery.beat:Scheduler",
        beat_max_loop_interval=SWEEP_PERIOD_S,
        beat_cron_starting_deadline=None,
    )
    app.steps["worker"].add(Growth)
    return app


def _every(task: str, period_s: float) -> dict[str, object]:
    # A tick that found no worker for two periods is worth nothing: the next one does the same.
    return {"task": task, "schedule": period_s, "options": {"expires": 2 * period_s}}


app = make_app()
