"""What a batch says beyond the official fields."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api.batch_shapes import BatchExtension
from batch.extension import extend
from batch.states import BatchStatus
from store.models import Batch
from store.repositories.progress import BatchReading, ServiceReading

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
NOW_S = int(NOW.timestamp())


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def batch(**changes: Any) -> Batch:
    columns = {
        "id": "batch_1",
        "status": "in_progress",
        "model": "m",
        "created_at": NOW - seconds(100),
        "in_progress_at": NOW - seconds(90),
        "expires_at": NOW + seconds(3600),
        "num_total": 1000,
        "num_completed": 90,
        "num_failed": 10,
        "priority": 0,
    }
    return Batch(**columns | changes)


def reading(**changes: Any) -> BatchReading:
    values: dict[str, Any] = {
        "batch_id": "batch_1",
        "now": NOW,
        "num_paced": 99,
        "paced_tokens": 4950,
        "paced_s": 50.0,
        "last_result_at": NOW - seconds(1),
        "num_leased": 3,
        "has_ready": True,
    }
    return BatchReading(**values | changes)


def waiting(**changes: Any) -> BatchReading:
    fresh = {"num_paced": 0, "paced_tokens": 0, "paced_s": None, "last_result_at": None}
    return reading(**fresh | {"num_leased": 0} | changes)


def service(**changes: Any) -> ServiceReading:
    values: dict[str, Any] = {
        "backlog_bytes": 6000.0,
        "live_bytes_per_s": None,
        "past_bytes_per_s": None,
        "num_dispatchers": 1,
    }
    return ServiceReading(**values | changes)


def said(
    one: Batch, read: BatchReading | None, over: ServiceReading | None = None
) -> BatchExtension:
    return extend(one, read, over or service(), now=NOW, models_up={"m"})


def test_a_batch_is_predicted_by_its_own_pace() -> None:
    found = said(batch(), reading())
    assert (found.rows_per_s, found.tokens_per_s) == (1.98, 99.0)
    assert found.predicted_finish_at == NOW_S + int(900 / 1.98)
    assert (found.feasible, found.warning, found.waiting_reason) == (True, None, None)


def test_a_range_is_as_wide_as_the_pace_has_varied() -> None:
    steady = said(batch(), reading())
    wide = (1.1 + 0.3 * 0.9) ** 1.9
    assert steady.predicted_finish_range == (
        NOW_S + int(900 / 1.98 / wide),
        NOW_S + int(900 / 1.98 * wide),
    )
    varied = said(batch(), reading(other_paces=(0.99, 1.5)))
    assert varied.predicted_finish_at == steady.predicted_finish_at, "the range alone widens"
    wider = (2 * (1.1 + 0.3 * 0.9)) ** 1.9
    assert varied.predicted_finish_range == (
        NOW_S + int(900 / 1.98 / wider),
        NOW_S + int(900 / 0.99 * wider),
    )
    assert said(batch(), waiting(), service(past_bytes_per_s=20.0)).predicted_finish_range is None


def test_a_range_narrows_as_rows_are_answered() -> None:
    widths = []
    for num_completed in (100, 500, 900, 980):
        found = said(batch(num_completed=num_completed), reading()).predicted_finish_range
        assert found is not None
        num_open = 990 - num_completed
        widths.append((found[1] - found[0]) / num_open)
    assert widths == sorted(widths, reverse=True)


def test_an_infeasible_window_is_said() -> None:
    found = said(batch(expires_at=NOW + seconds(100)), reading())
    assert found.feasible is False
    assert found.warning is not None
    assert "0.1 hours after its completion window" in found.warning


@pytest.mark.parametrize(
    ("over", "left_s"),
    [
        (service(), None),
        (service(past_bytes_per_s=20.0), 300),
        (service(past_bytes_per_s=20.0, live_bytes_per_s=60.0), 100),
        (service(past_bytes_per_s=1e-9), 365 * 86400),
    ],
)
def test_without_a_pace_the_service_predicts(over: ServiceReading, left_s: int | None) -> None:
    new = batch(status="validating", num_total=0, num_completed=0, num_failed=0, model=None)
    for one, read in ((new, None), (batch(), waiting()), (batch(), reading(num_paced=1))):
        found = said(one, read, over)
        assert found.predicted_finish_at == (None if left_s is None else NOW_S + left_s)
        assert found.feasible == (None if left_s is None else left_s <= 3600)


def test_a_paused_batch_is_not_predicted() -> None:
    found = said(batch(paused_at=NOW), waiting(), service(past_bytes_per_s=1.0))
    assert (found.paused, found.predicted_finish_at, found.feasible) == (True, None, None)


def test_without_its_engine_a_batch_is_not_predicted() -> None:
    speed = service(past_bytes_per_s=1.0)
    found = said(batch(model="away", expires_at=NOW + seconds(10)), waiting(), speed)
    assert found.waiting_reason == "engine_unavailable"
    assert (found.predicted_finish_at, found.feasible, found.warning) == (None, None, None)
    assert said(batch(), waiting(), speed).predicted_finish_at is not None


@pytest.mark.parametrize(
    ("one", "read", "over", "reason"),
    [
        (batch(status="validating"), None, service(), "validating"),
        (batch(status="cancelling"), None, service(), "cancelling"),
        (batch(status="finalizing"), None, service(), "finalizing"),
        (batch(num_completed=990), reading(), service(), "finalizing"),
        (batch(expires_at=NOW), reading(), service(), "finalizing"),
        (batch(), reading(), service(), None),
        (batch(), reading(last_result_at=NOW - seconds(31)), service(), "at_engine"),
        (batch(), waiting(num_leased=3), service(), "at_engine"),
        (batch(in_progress_at=NOW), waiting(num_leased=3), service(), None),
        (batch(paused_at=NOW), waiting(), service(), "paused"),
        (batch(model="away"), waiting(), service(), "engine_unavailable"),
        (batch(), waiting(has_ready=False), service(), "backing_off"),
        (batch(), waiting(), service(num_dispatchers=0), "dispatcher_starting"),
        (batch(), waiting(), service(), "queued"),
        # Read before it came there, and before it left.
        (batch(status="validating", num_total=0), waiting(), service(), "validating"),
        (batch(), None, service(), None),
    ],
)
def test_why_nothing_is_finished(
    one: Batch, read: BatchReading | None, over: ServiceReading, reason: str | None
) -> None:
    assert said(one, read, over).waiting_reason == reason


@pytest.mark.parametrize("status", ["completed", "failed", "expired", "cancelled"])
def test_at_the_end_nothing_waits(status: str) -> None:
    found = said(batch(status=BatchStatus(status)), None, service(past_bytes_per_s=1.0))
    assert (found.waiting_reason, found.predicted_finish_at) == (None, None)
