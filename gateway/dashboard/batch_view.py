"""What a batch looks like on a page: statements derived from its row, ready to be printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import orjson

from api.batch_shapes import BatchExtension, WaitingReason
from batch.rerun import REPEATABLE
from batch.states import CANCELLABLE_BATCH, TERMINAL_BATCH, BatchStatus
from batch.steer import STEERABLE
from gateway.dashboard import wording
from gateway.dashboard.row_errors import RowError
from store.models import Batch, BatchEvent
from store.repositories.overview import BatchOverview, FailedRow, ProgressPoint

TONES: Final[Mapping[str, str]] = {
    BatchStatus.VALIDATING: "run",
    BatchStatus.IN_PROGRESS: "run",
    BatchStatus.FINALIZING: "run",
    BatchStatus.COMPLETED: "good",
    BatchStatus.CANCELLING: "warn",
    BatchStatus.CANCELLED: "idle",
    BatchStatus.FAILED: "bad",
    BatchStatus.EXPIRED: "bad",
}
LABELS: Final[Mapping[str, str]] = {BatchStatus.IN_PROGRESS: "in progress"}

WAITING_WORDS = {
    WaitingReason.VALIDATING: "checking the input",
    WaitingReason.CANCELLING: "stopping its rows",
    WaitingReason.FINALIZING: "writing the files",
    WaitingReason.AT_ENGINE: "at the engine: online requests go first, or answers are long",
    WaitingReason.PAUSED: "paused",
    WaitingReason.ENGINE_UNAVAILABLE: "waiting for an engine that serves its model",
    WaitingReason.BACKING_OFF: "waiting before rows are tried again",
    WaitingReason.DISPATCHER_STARTING: "about to start",
    WaitingReason.QUEUED: "waiting for its turn",
}

EVENT_LABELS: Final[Mapping[str, str]] = {
    "created": "Created",
    BatchStatus.VALIDATING: "Validation began",
    BatchStatus.IN_PROGRESS: "Validated, rows go to the engine",
    BatchStatus.FINALIZING: "All rows done, writing files",
    BatchStatus.COMPLETED: "Completed",
    BatchStatus.FAILED: "Validation failed",
    BatchStatus.CANCELLING: "Cancellation requested",
    BatchStatus.CANCELLED: "Cancelled",
    BatchStatus.EXPIRED: "Completion window ended",
    "paused": "Paused",
    "resumed": "Resumed",
    "priority_changed": "Priority changed",
    "retried": "Retried",
}
EVENTS_OF_PEOPLE = frozenset(
    {"created", BatchStatus.CANCELLING, "paused", "resumed", "priority_changed", "retried"}
)
EVENT_FIGURES = ("num_completed", "num_failed", "num_stopped")


@dataclass(frozen=True)
class Part:
    """Rows of a batch that are in one state.

    Attributes:
        tone: The kind of colour that goes with it.
        name: The state in words.
        num: How many rows.
    """

    tone: str
    name: str
    num: int


@dataclass(frozen=True)
class Segment:
    """A part drawn in the bar of a batch; where it begins and how wide it is, in percent."""

    part: Part
    begin: float
    width: float


@dataclass(frozen=True)
class BatchView:
    """One batch as a page shows it; derived figures are properties.

    Attributes:
        source: Its row, and who it belongs to.
        extension: What is predicted of it and what it waits for.
        retry_id: The batch that runs its unanswered rows again, if there is one.
    """

    source: BatchOverview
    extension: BatchExtension
    retry_id: str | None = None

    @property
    def batch(self) -> Batch:
        """The row."""
        return self.source.batch

    @property
    def status(self) -> BatchStatus:
        return BatchStatus(self.batch.status)

    @property
    def label(self) -> str:
        """The status in words; an end with failed rows says so."""
        label = LABELS.get(self.batch.status, self.batch.status)
        return f"{label}, {self.num_failed:,} failed" if self._ended_with_failures else label

    @property
    def tone(self) -> str:
        """The kind of colour that goes with the status."""
        return "warn" if self._ended_with_failures else TONES[self.batch.status]

    @property
    def _ended_with_failures(self) -> bool:
        return self.status == BatchStatus.COMPLETED and self.num_failed > 0

    @property
    def paused(self) -> bool:
        """Whether a live batch is held back."""
        return self.batch.paused_at is not None and self.live

    @property
    def live(self) -> bool:
        """Whether anything may still happen."""
        return self.status not in TERMINAL_BATCH

    @property
    def cancellable(self) -> bool:
        """Whether the state table allows cancelling."""
        return self.status in CANCELLABLE_BATCH

    @property
    def num_finished(self) -> int:
        """Rows with a result of either kind."""
        return self.batch.num_completed + self.batch.num_failed

    @property
    def num_waiting(self) -> int:
        """Rows without a result that no engine has."""
        if not self.live:
            return 0
        return max(0, self.batch.num_total - self.num_finished - self.source.num_running)

    @property
    def waits_since_s(self) -> float:
        """Seconds in which it could have run, if rows wait for an engine that is there; else 0."""
        begun_at = self.batch.in_progress_at
        engine_away = self.extension.waiting_reason == WaitingReason.ENGINE_UNAVAILABLE
        if begun_at is None or self.paused or engine_away or not self.num_waiting:
            return 0.0
        return (self.source.now - begun_at) / timedelta(seconds=1)

    @property
    def at_engine(self) -> list[Part]:
        """Its rows at engines by state; one part where no engine reports states."""
        states = self.extension.at_engine
        if not self.live or states is None or states.decoding is None:
            parts = [Part("run", "at the engine", self.source.num_running if self.live else 0)]
        else:
            parts = [
                Part("run", "decoding", states.decoding),
                Part("parked", "parked", states.parked or 0),
                Part("queued", "queued there", states.queued or 0),
            ]
        return [part for part in parts if part.num]

    @property
    def states_at_engine(self) -> list[Part]:
        """Those parts where they say more than how many rows are there."""
        return [part for part in self.at_engine if part.name != "at the engine"]

    @property
    def num_answered(self) -> int:
        """Rows that ran to a success or an error, not closed by a cancel or its deadline."""
        return self.num_finished - self.batch.num_stopped

    @property
    def num_failed(self) -> int:
        """Those of them that ran to an error."""
        return self.batch.num_failed - self.batch.num_stopped

    @property
    def percent(self) -> float:
        """Rows that were answered, of all; once it has ended those that succeeded."""
        num = self.num_answered if self.live else self.batch.num_completed
        return wording.percent(num, self.batch.num_total)

    @property
    def segments(self) -> list[Segment]:
        """Its rows as one bar. Rows that wait are what is missing to the full width."""
        parts = (
            Part("good", "succeeded", self.batch.num_completed),
            Part("bad", "failed", self.num_failed),
            Part("warn", "not run", self.batch.num_stopped),
            *self.at_engine,
        )
        found, begin = [], 0.0
        for part in parts:
            width = 100 * part.num / max(1, self.batch.num_total)
            if part.num > 0:
                found.append(Segment(part, round(begin, 2), round(max(0.4, width), 2)))
            begin += width
        return found

    @property
    def left_s(self) -> float | None:
        """Seconds until the predicted end; none where nothing is predicted."""
        if self.predicted_finish_at is None:
            return None
        return max(0.0, (self.predicted_finish_at - self.source.now) / timedelta(seconds=1))

    @property
    def range_left(self) -> str:
        """Between which durations it will probably end; empty where no pace of its own says it."""
        if self.extension.predicted_finish_range is None:
            return ""
        now_s = self.source.now.timestamp()
        first, last = (
            wording.about(max(0.0, end_s - now_s))
            for end_s in self.extension.predicted_finish_range
        )
        return f"{first} to {last}" if first != last else ""

    @property
    def until_deadline_s(self) -> float:
        """Seconds of the completion window that are left."""
        return (self.batch.expires_at - self.source.now) / timedelta(seconds=1)

    @property
    def late(self) -> bool:
        """Whether it is predicted to end after its completion window."""
        return self.extension.feasible is False

    @property
    def time_left(self) -> str:
        """One line: what is to be expected, or what the batch waits for."""
        if not self.live:
            return self._ended()
        if self.paused:
            return WAITING_WORDS[WaitingReason.PAUSED]
        left = "" if self.left_s is None else f"about {wording.about(self.left_s)} left"
        if self.extension.waiting_reason is not None:
            waiting = WAITING_WORDS[self.extension.waiting_reason]
            return f"{waiting} · {left}" if left else waiting
        return left or "starting"

    @property
    def predicted_finish_at(self) -> datetime | None:
        """When the last row is predicted to be done."""
        finish_s = self.extension.predicted_finish_at
        return None if finish_s is None else datetime.fromtimestamp(finish_s, UTC)

    @property
    def steerable(self) -> bool:
        """Whether it can be paused, resumed and given another priority."""
        return self.status in STEERABLE

    @property
    def retriable(self) -> bool:
        """Whether rows without an answer can be run again, and were not yet."""
        return self.status in REPEATABLE and self.batch.num_failed > 0 and self.retry_id is None

    @property
    def retry_label(self) -> str:
        """What the button that runs them again says: "Retry 2 failed rows", "Run 60 rows"."""
        num = self.batch.num_failed
        rows = f"{num:,} {'row' if num == 1 else 'rows'}"
        if not self.batch.num_stopped:
            return f"Retry {rows.replace(' ', ' failed ', 1)}"
        return f"Run {rows}" if self.num_failed == 0 else f"Retry {rows}"

    @property
    def ended_at(self) -> datetime | None:
        """When the terminal status was entered."""
        return None if self.live else getattr(self.batch, f"{self.status}_at")

    def _ended(self) -> str:
        if self.ended_at is None:
            return ""
        took_s = (self.ended_at - self.batch.created_at) / timedelta(seconds=1)
        return f"took {wording.duration(max(1.0, took_s))}"


@dataclass(frozen=True)
class EventView:
    """One line of the timeline."""

    at: datetime
    label: str
    tone: str
    detail: str
    actor: str = ""

    @classmethod
    def of(cls, event: BatchEvent) -> EventView:
        """What the timeline says about an event."""
        label = EVENT_LABELS.get(event.event, wording.label(event.event).capitalize())
        said = sorted((event.detail or {}).items(), key=lambda pair: _place(pair[0]))
        detail = ", ".join(f"{wording.label(k)}: {_figure(v)}" for k, v in said)
        return cls(event.created_at, label, TONES.get(event.event, "idle"), detail, _actor(event))


@dataclass(frozen=True)
class FailedRowView:
    """One row that ended in an error."""

    line_no: int
    custom_id: str
    error: RowError
    at: datetime

    @classmethod
    def of(cls, row: FailedRow) -> FailedRowView:
        """Read the line that will stand in the error file."""
        error = RowError.of(row.line) or RowError(None, "", "no message")
        return cls(row.line_no, row.custom_id, error, row.created_at)


def progress_chart(points: Sequence[ProgressPoint], view: BatchView) -> str:
    """Answered rows over time up to now or the end, as the JSON that the chart element carries."""
    batch = view.batch
    done_at: dict[float, int] = {}
    if batch.in_progress_at is not None:
        done_at[_chart_s(batch.in_progress_at)] = 0
    # Rows written together have one instant: the last of them says how many were done then.
    # Those that a cancel or the deadline closed come last, and were not answered.
    done_at |= {_chart_s(p.at): min(p.num_finished, view.num_answered) for p in points}
    last_at = view.ended_at or (view.source.now if view.live else None)
    if last_at is not None:
        done_at[max(_chart_s(last_at), *done_at, 0.0)] = view.num_answered
    return orjson.dumps(
        {
            "x": list(done_at),
            "series": [{"label": "rows answered", "y": list(done_at.values())}],
            "max": batch.num_total,
        }
    ).decode()


def _actor(event: BatchEvent) -> str:
    """Who did it; empty where a person did whose name was not recorded."""
    return event.actor or ("" if event.event in EVENTS_OF_PEOPLE else "coserve")


def _place(key: str) -> int:
    """Where a detail stands: the database does not keep their order."""
    return EVENT_FIGURES.index(key) if key in EVENT_FIGURES else len(EVENT_FIGURES)


def _figure(value: object) -> str:
    return wording.count(value) if isinstance(value, int) else str(value)


def _chart_s(at: datetime) -> float:
    return round(at.timestamp(), 1)
