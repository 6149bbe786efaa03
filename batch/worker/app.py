"""The Celery app: `celery -A batch.worker.app worker|beat`.

Settings as measured to survive kill -9 of a pool child, of the worker and of the broker. A message
is acknowledged when its task starts: it need not survive, since the sweep wakes again within
seconds, and so a task may take as long as there is work.
"""

from __future__ import annotations

import warnings
from typing import Final

from celery import Celery
from celery.platforms import SecurityWarning

from batch.queue import GC_FILES, STAGES, SWEEP, TASKS
from batch.settings import BatchSettings, CommonSettings
from batch.worker.growth import Growth

# As whom a worker runs is the operator's choice; the warning is no line of a log.
warnings.filterwarnings("ignore", category=SecurityWarning)

TASK_TIME_LIMIT_S: Final = 110
TASK_SOFT_LIMIT_S: Final = 90
"""Of the sweep and the collection; stages have limits of their own (batch/worker/stage_work.py)."""

VISIBILITY_TIMEOUT_S: Final = 120
"""After so long a message comes again that a worker took and died with."""

ANSWER_S: Final = 30.0

SWEEP_PERIOD_S: Final = 3.0
GC_PERIOD_S: Final = 60.0


def make_app(
    settings: CommonSettings | None = None, *, answer_s: float = ANSWER_S, connect_s: float = 5.0
) -> Celery:
    """A configured app. Connects to nothing until it is used.

    Args:
        settings: Of the process that uses it; none: of a worker.
        answer_s: How long a socket waits for the broker; who only sends gives less.
        connect_s: The same of a connection.
    """
    settings = settings or BatchSettings()
    broker = settings.broker.celery()
    app = Celery("coserve", set_as_current=False)
    app.conf.update(
        # Not `broker_url`: Celery's commands would put the environment's BROKER_URL in its place.
        broker_read_url=broker["broker_url"],
        broker_write_url=broker["broker_url"],
        broker_use_ssl=broker["broker_use_ssl"],
        include=["batch.worker.tasks"],
        task_routes={task: {"queue": task} for task in TASKS},
        task_default_queue=STAGES,
        task_acks_late=False,
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
            "socket_timeout": answer_s,
            "socket_connect_timeout": connect_s,
            "socket_keepalive": True,
            **broker["options"],
        },
        beat_schedule={
            "sweep": {"task": SWEEP, "schedule": SWEEP_PERIOD_S},
            "gc_files": {"task": GC_FILES, "schedule": GC_PERIOD_S},
        },
        beat_scheduler="batch.worker.beat:WakeScheduler",
        beat_max_loop_interval=SWEEP_PERIOD_S,
        beat_cron_starting_deadline=None,
    )
    app.steps["worker"].add(Growth)
    return app


app = make_app()
