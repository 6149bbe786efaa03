from __future__ import annotations

from batch.queue import TASKS
from batch.settings import BatchSettings
from batch.worker.app import (
    TASK_SOFT_LIMIT_S,
    TASK_TIME_LIMIT_S,
    VISIBILITY_TIMEOUT_S,
    app,
    make_app,
)
from batch.worker.commands import beat_command, worker_commands


def test_dispatchers_have_a_worker_of_their_own() -> None:
    dispatch, stages, sweep = worker_commands(BatchSettings())
    assert "--queues=batch.dispatch" in dispatch.argv
    assert "--queues=batch.stages,batch.deliver,batch.gc_files" in stages.argv
    assert "--queues=batch.sweep" in sweep.argv
    assert [one.name for one in (dispatch, stages, sweep)] == [
        "worker-dispatch",
        "worker-stages",
        "worker-sweep",
    ]
    assert "beat" in beat_command(BatchSettings()).argv


def test_limits_of_tasks_end_before_their_messages_come_again() -> None:
    assert TASK_SOFT_LIMIT_S < TASK_TIME_LIMIT_S < VISIBILITY_TIMEOUT_S
    conf = make_app(BatchSettings()).conf
    assert conf.worker_prefetch_multiplier == 1
    assert conf.broker_transport_options["visibility_timeout"] == VISIBILITY_TIMEOUT_S


def test_messages_are_acknowledged_at_once() -> None:
    """A task may take as long as there is work, and its message need not survive."""
    from batch.worker import tasks

    for name in TASKS:
        assert not app.tasks[name].acks_late
    assert tasks.sweep.time_limit == TASK_TIME_LIMIT_S
    assert tasks.stages.time_limit is None
    assert tasks.dispatch.time_limit is None
