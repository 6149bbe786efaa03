from __future__ import annotations

from batch.settings import BatchSettings
from batch.worker.app import (
    STAGE_SOFT_LIMIT_S,
    STAGE_TIME_LIMIT_S,
    VISIBILITY_TIMEOUT_S,
    make_app,
)
from batch.worker.commands import beat_command, worker_commands


def test_dispatchers_have_a_worker_of_their_own() -> None:
    dispatch, stages, sweep = worker_commands(BatchSettings())
    assert "--queues=dispatch" in dispatch.argv
    assert "--queues=stages" in stages.argv
    assert "--queues=sweep" in sweep.argv
    assert [one.name for one in (dispatch, stages, sweep)] == [
        "worker-dispatch",
        "worker-stages",
        "worker-sweep",
    ]
    assert "beat" in beat_command(BatchSettings()).argv


def test_no_stage_may_outlast_the_visibility_timeout() -> None:
    assert STAGE_SOFT_LIMIT_S < STAGE_TIME_LIMIT_S < VISIBILITY_TIMEOUT_S


def test_messages_survive_workers() -> None:
    conf = make_app(BatchSettings()).conf
    assert conf.task_acks_late
    assert conf.task_reject_on_worker_lost
    assert conf.worker_prefetch_multiplier == 1
    assert conf.broker_transport_options["visibility_timeout"] == VISIBILITY_TIMEOUT_S


def test_the_dispatch_message_is_acknowledged_at_once() -> None:
    from batch.worker import tasks

    assert not tasks.dispatch.acks_late
    assert tasks.validate.acks_late
    assert tasks.finalize.time_limit == STAGE_TIME_LIMIT_S
    assert tasks.validate.time_limit is None
    assert tasks.dispatch.time_limit is None
