from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from batch.states import BatchStatus
from gateway.dashboard.views import (
    LABELS,
    TONES,
    BatchView,
    EventView,
    FailedRowView,
    progress_chart,
)
from store.models import Batch, BatchEvent
from store.repositories.overview import BatchOverview, FailedRow, ProgressPoint

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def view(
    status: str = "in_progress",
    *,
    num_running: int = 0,
    pace_rows: int = 0,
    pace_since_s: float | None = None,
    **columns: Any,
) -> BatchView:
    columns = {
        "num_total": 100,
        "num_completed": 0,
        "num_failed": 0,
        "created_at": NOW - timedelta(minutes=10),
        "in_progress_at": NOW - timedelta(seconds=50),
        "expires_at": NOW + timedelta(hours=1),
        **columns,
    }
    since = None if pace_since_s is None else NOW - timedelta(seconds=pace_since_s)
    batch = Batch(id="batch_1", status=status, **columns)
    return BatchView(
        BatchOverview(batch, "Default", None, "in.jsonl", 9, num_running, pace_rows, since, NOW)
    )


def test_every_status_has_a_tone_and_words() -> None:
    assert set(TONES) == set(BatchStatus)
    assert set(LABELS) <= set(BatchStatus)
    for status in BatchStatus:
        ended: dict[str, Any] = {} if status is BatchStatus.VALIDATING else {f"{status}_at": NOW}
        assert view(status, **ended).time_left


def test_time_left_comes_from_the_pace_of_the_last_results() -> None:
    shown = view(num_completed=50, pace_rows=25, pace_since_s=5.0)
    assert shown.rows_per_s == 5.0
    assert shown.left_s == 10.0
    assert shown.predicted_finish_at == NOW + timedelta(seconds=10)
    assert shown.time_left == "about 10 s left"
    assert not shown.late


def test_before_the_second_result_the_pace_is_that_since_the_start() -> None:
    assert view(num_completed=1, num_results=1).rows_per_s == pytest.approx(1 / 50)


def test_without_a_result_nothing_is_promised() -> None:
    assert view().left_s is None
    assert view().time_left == "waiting for an engine"
    assert view(num_running=3).time_left == "starting"


def test_a_batch_that_will_miss_its_window_says_so() -> None:
    assert view(num_completed=10, pace_rows=9, pace_since_s=900.0).late


def test_a_paused_batch_has_no_end_in_sight() -> None:
    shown = view(num_completed=50, pace_rows=25, pace_since_s=5.0, paused_at=NOW)
    assert shown.paused
    assert shown.time_left == "paused"
    assert shown.left_s is None


def test_rows_are_finished_running_or_waiting() -> None:
    shown = view(num_completed=40, num_failed=10, num_running=8)
    assert (shown.num_finished, shown.num_waiting, shown.percent) == (50, 42, 50.0)


def test_an_ended_batch_says_how_long_it_took() -> None:
    shown = view("completed", completed_at=NOW, num_completed=100)
    assert shown.time_left == "took 10 min"
    assert not shown.live
    assert not shown.cancellable
    assert shown.num_waiting == 0


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            {"response": None, "error": {"code": "batch_expired", "message": "too late"}},
            (None, "batch_expired", "too late"),
        ),
        (
            {
                "response": {
                    "status_code": 400,
                    "body": {"error": {"message": "no", "type": "invalid", "code": None}},
                },
                "error": None,
            },
            (400, "invalid", "no"),
        ),
        ({"response": {"status_code": 500, "body": {}}, "error": None}, (500, "", "no message")),
    ],
)
def test_a_failed_row_shows_its_error(line: dict[str, Any], expected: tuple[Any, ...]) -> None:
    row = FailedRowView.of(FailedRow(3, "a", json.dumps(line).encode(), NOW))
    assert (row.status_code, row.code, row.message) == expected


def test_an_unknown_event_is_still_said() -> None:
    event = BatchEvent(event="row_reaped", detail={"num_rows": 3}, created_at=NOW)
    shown = EventView.of(event)
    assert (shown.label, shown.detail, shown.tone) == ("Row reaped", "rows: 3", "idle")


def test_the_chart_goes_from_zero_to_now() -> None:
    shown = view(num_total=4, num_completed=3, in_progress_at=NOW - timedelta(seconds=5))
    together = NOW - timedelta(seconds=2)
    points = [ProgressPoint(together, 1), ProgressPoint(together, 2)]
    chart = json.loads(progress_chart(points, shown))
    now_s = NOW.timestamp()
    assert chart["x"] == [now_s - 5, now_s - 2, now_s]
    assert chart["series"][0]["y"] == [0, 2, 3]
    assert chart["max"] == 4


def test_the_chart_of_an_ended_batch_stays_as_it_is() -> None:
    ended = view("completed", num_completed=2, completed_at=NOW - timedelta(seconds=40))
    chart = json.loads(progress_chart([ProgressPoint(NOW - timedelta(seconds=42), 2)], ended))
    assert chart["x"][-1] == NOW.timestamp() - 40
    assert chart["series"][0]["y"] == [0, 2, 2]


def test_before_anything_ran_there_is_nothing_to_draw() -> None:
    chart = json.loads(progress_chart([], view("failed", in_progress_at=None, failed_at=NOW)))
    assert chart["series"][0]["y"] == [0]
