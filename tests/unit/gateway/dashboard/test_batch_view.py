from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api.batch_shapes import BatchExtension, RowsAtEngines, WaitingReason
from batch.states import BatchStatus
from gateway.dashboard.batch_view import (
    LABELS,
    TONES,
    WAITING_WORDS,
    BatchView,
    EventView,
    FailedRowView,
    Part,
    progress_chart,
)
from gateway.dashboard.templating import render
from store.models import Batch, BatchEvent
from store.repositories.overview import BatchOverview, FailedRow, ProgressPoint

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def view(
    status: str = "in_progress",
    *,
    num_running: int = 0,
    extension: dict[str, Any] | None = None,
    retry_id: str | None = None,
    **columns: Any,
) -> BatchView:
    columns = {
        "num_total": 100,
        "num_completed": 0,
        "num_failed": 0,
        "num_stopped": 0,
        "created_at": NOW - timedelta(minutes=10),
        "in_progress_at": NOW - timedelta(seconds=50),
        "expires_at": NOW + timedelta(hours=1),
        **columns,
    }
    batch = Batch(id="batch_1", status=status, **columns)
    fields: dict[str, Any] = {
        "predicted_finish_at": None,
        "feasible": None,
        "warning": None,
        "tokens_per_s": None,
        "rows_per_s": None,
        "waiting_reason": None,
        "paused": batch.paused_at is not None,
        "priority": 0,
        "retry_of": None,
        **(extension or {}),
    }
    return BatchView(
        BatchOverview(batch, "Default", None, "in.jsonl", 9, num_running, NOW),
        BatchExtension(**fields),
        retry_id,
    )


def in_s(seconds: float) -> int:
    return int((NOW + timedelta(seconds=seconds)).timestamp())


def test_every_status_has_a_tone_and_words() -> None:
    assert set(TONES) == set(BatchStatus)
    assert set(LABELS) <= set(BatchStatus)
    for status in BatchStatus:
        ended: dict[str, Any] = {} if status is BatchStatus.VALIDATING else {f"{status}_at": NOW}
        assert view(status, **ended).time_left


def test_every_reason_has_words() -> None:
    assert set(WAITING_WORDS) == set(WaitingReason)


def test_time_left_is_what_is_predicted() -> None:
    shown = view(num_completed=50, extension={"predicted_finish_at": in_s(10), "feasible": True})
    assert shown.left_s == 10.0
    assert shown.predicted_finish_at == NOW + timedelta(seconds=10)
    assert shown.time_left == "about 10 s left"
    assert not shown.late


def test_an_end_is_said_as_a_range() -> None:
    assert view(extension={"predicted_finish_at": in_s(10)}).range_left == ""
    shown = view(extension={"predicted_finish_range": (in_s(1500), in_s(3000))})
    assert shown.range_left == "25 min to 50 min"
    near = view(extension={"predicted_finish_range": (in_s(-3), in_s(4))})
    assert near.range_left == "", "nobody needs two words for a few seconds"


def test_a_prediction_that_has_passed_is_now() -> None:
    assert view(extension={"predicted_finish_at": in_s(-30)}).left_s == 0.0


def test_what_a_batch_waits_for_comes_first() -> None:
    reason = {"waiting_reason": WaitingReason.QUEUED}
    assert view(extension=reason).time_left == "waiting for its turn"
    shown = view(extension={**reason, "predicted_finish_at": in_s(7200)})
    assert shown.time_left == "waiting for its turn · about 2 h left"


def test_without_a_result_nothing_is_promised() -> None:
    assert view().left_s is None
    assert view(num_running=3).time_left == "starting"


def test_a_batch_that_will_miss_its_window_is_late() -> None:
    assert view(extension={"predicted_finish_at": in_s(9000), "feasible": False}).late


def test_a_paused_batch_has_no_end_in_sight() -> None:
    shown = view(num_completed=50, paused_at=NOW)
    assert shown.paused
    assert shown.time_left == "paused"
    assert shown.left_s is None


def test_what_can_be_done_follows_from_the_status() -> None:
    assert view().steerable
    assert not view("finalizing", finalizing_at=NOW).steerable
    ended: dict[str, Any] = {"completed_at": NOW, "num_completed": 97, "num_failed": 3}
    assert view("completed", **ended).retriable
    assert not view("completed", retry_id="batch_2", **ended).retriable
    assert not view("completed", completed_at=NOW, num_completed=100).retriable
    assert not view(num_failed=3).retriable
    assert not view("failed", failed_at=NOW).retriable


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
    assert (row.error.status_code, row.error.code, row.error.message) == expected


def test_an_unknown_event_is_still_said() -> None:
    event = BatchEvent(event="row_reaped", detail={"num_rows": 3}, created_at=NOW)
    shown = EventView.of(event)
    assert (shown.label, shown.detail, shown.tone) == ("Row reaped", "rows: 3", "idle")


def test_rows_at_the_engine_are_said_by_what_they_do() -> None:
    there = RowsAtEngines(rows=20, decoding=12, parked=5, queued=3)
    shown = view(num_completed=50, num_running=20, extension={"at_engine": there})
    assert [(s.part.name, s.part.num, s.begin, s.width) for s in shown.segments] == [
        ("succeeded", 50, 0.0, 50.0),
        ("decoding", 12, 50.0, 12.0),
        ("parked", 5, 62.0, 5.0),
        ("queued there", 3, 67.0, 3.0),
    ]
    row = " ".join(re.sub(r"<[^>]+>", "", render("fragments/batch_row.html", b=shown)).split())
    assert "50 of 100 12 decoding 5 parked 3 queued there" in row
    progress = render("fragments/batch_progress.html", b=shown)
    assert "50 succeeded, 12 decoding, 5 parked, 3 queued there, 30 waiting" in progress
    assert '<dd id="count-there">20<span class="sub">' in progress


def test_an_engine_that_does_not_say_which_leaves_one_part() -> None:
    shown = view(num_running=20)
    assert shown.at_engine == [Part("run", "at the engine", 20)]
    ended = view("completed", num_completed=100, completed_at=NOW)
    assert [segment.part.name for segment in ended.segments] == ["succeeded"]


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


@pytest.mark.parametrize("status", ["cancelled", "expired"])
def test_rows_that_were_stopped_are_neither_done_nor_failed(status: str) -> None:
    ended: dict[str, Any] = {f"{status}_at": NOW, "error_file_id": "file-1"}
    counts: dict[str, Any] = {
        "num_total": 20,
        "num_completed": 2,
        "num_failed": 18,
        "num_stopped": 17,
    }
    shown = view(status, **counts, **ended)
    progress = render("fragments/batch_progress.html", b=shown)
    assert "10 %" in progress
    assert '<dt>Failed</dt><dd class="bad-text" id="count-failed">1</dd>' in progress
    assert '<dt>Not run</dt><dd id="count-stopped">17</dd>' in progress
    row = " ".join(re.sub(r"<[^>]+>", "", render("fragments/batch_row.html", b=shown)).split())
    assert "3 of 20 · 1 failed · 17 not run" in row
    assert "1 failed, 17 not run" in render("fragments/batch_files.html", b=shown)


def test_an_end_with_failed_rows_does_not_look_clean() -> None:
    counts: dict[str, Any] = {"num_total": 30, "num_completed": 28, "num_failed": 2}
    shown = view("completed", completed_at=NOW, **counts)
    assert (shown.label, shown.tone, shown.percent) == ("completed, 2 failed", "warn", 93.3)
    assert (shown.retriable, shown.retry_label) == (True, "Retry 2 failed rows")
    clean = view("completed", completed_at=NOW, num_total=30, num_completed=30)
    assert (clean.label, clean.tone, clean.percent) == ("completed", "good", 100.0)


@pytest.mark.parametrize(
    ("failed", "stopped", "says"),
    [(1, 0, "Retry 1 failed row"), (60, 60, "Run 60 rows"), (5, 3, "Retry 5 rows")],
)
def test_a_retry_says_how_many_rows(failed: int, stopped: int, says: str) -> None:
    counts: dict[str, Any] = {"num_failed": failed, "num_stopped": stopped}
    assert view("cancelled", cancelled_at=NOW, **counts).retry_label == says


def test_the_chart_does_not_jump_at_a_cancel() -> None:
    counts: dict[str, Any] = {
        "num_total": 20,
        "num_completed": 2,
        "num_failed": 18,
        "num_stopped": 18,
    }
    shown = view("cancelled", cancelled_at=NOW, **counts)
    before, after = NOW - timedelta(seconds=9), NOW - timedelta(seconds=1)
    chart = json.loads(progress_chart([ProgressPoint(before, 2), ProgressPoint(after, 20)], shown))
    assert chart["series"][0]["y"] == [0, 2, 2, 2]


def test_rows_that_a_dispatcher_holds_are_at_the_engine_not_running() -> None:
    progress = render("fragments/batch_progress.html", b=view(num_running=119))
    assert '<dt>At the engine</dt><dd id="count-there">119</dd>' in progress
    assert "Running" not in progress
    event = BatchEvent(event="in_progress", detail=None, created_at=NOW)
    assert EventView.of(event).label == "Validated, rows go to the engine"


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        ({"num_rows": 120, "num_bytes": 85549}, "rows: 120, bytes: 85,549"),
        (
            {"num_failed": 18, "num_stopped": 1, "num_completed": 1234},
            "completed: 1,234, failed: 18, stopped: 1",
        ),
        ({"retry": "batch_2"}, "retry: batch_2"),
    ],
)
def test_figures_of_the_timeline_are_ordered_and_readable(
    detail: dict[str, Any], said: str
) -> None:
    assert EventView.of(BatchEvent(event="x", detail=detail, created_at=NOW)).detail == said


def test_a_batch_behind_online_requests_does_not_read_like_a_fault() -> None:
    assert "online requests go first" in view(extension={"waiting_reason": "at_engine"}).time_left
