"""What a verdict is made of: plain values, whoever gathered them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.verdict.harvest import Harvest

LOOK_BACKS: Final = (1, 5, 15, 60)
"""Minutes over which chat is judged: the shortest that holds enough samples."""


@dataclass(frozen=True)
class Kept:
    """How a target was kept.

    Attributes:
        met: Latencies within it.
        missed: Latencies over it.
        num: All latencies, those that had no target too.
    """

    met: float = 0.0
    missed: float = 0.0
    num: float = 0.0

    @property
    def judged(self) -> float:
        """Latencies that had a target."""
        return self.met + self.missed

    @property
    def share(self) -> float | None:
        """In time, 0 to 1; none where nothing had a target."""
        return self.met / self.judged if self.judged else None


@dataclass(frozen=True)
class LookBack:
    """What clients got over the last minutes.

    Attributes:
        minutes: How many; one of `LOOK_BACKS`.
        kept: By series of the history, such as `ttft:online` and `beside:ttft`.
        answers: Responses to prompts by HTTP status.
    """

    minutes: int
    kept: Mapping[str, Kept] = field(default_factory=dict)
    answers: Mapping[str, float] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """As in "last 5 min"."""
        return {1: "last minute", 60: "last hour"}.get(self.minutes, f"last {self.minutes} min")

    @property
    def num_answers(self) -> float:
        """Responses of every status."""
        return sum(self.answers.values())

    def of_kind(self, digit: str) -> float:
        """Responses whose status begins so: `4` or `5`."""
        return sum(num for status, num in self.answers.items() if status.startswith(digit))

    def codes(self, digit: str) -> str:
        """Their statuses, the most frequent first: '41 × 503, 2 × 500'."""
        found = [(num, one) for one, num in self.answers.items() if one.startswith(digit) and num]
        return ", ".join(f"{num:,.0f} × {status}" for num, status in sorted(found, reverse=True))

    def of(self, series: str) -> Kept:
        """How one series was kept; nothing where nothing is known."""
        return self.kept.get(series, Kept())


@dataclass(frozen=True)
class Engine:
    """One engine in use.

    Attributes:
        name: What operators call it.
        model: Served by it; empty while it has never answered.
        why: Why it is down.
        url: By which it is told to be used again; empty where it is not known.
        draining: It gets no new request, by somebody's wish.
        num_policy_errors: Steps that a plainer policy had to plan.
        policy_error: The newest reason for that.
        slowdown: Step times now over the profiled ones; none where it is not reported.
        usual_slowdown: The same over the last day.
        profile: `measuring` while it still measures its steps.
    """

    name: str
    model: str = ""
    up: bool = True
    why: str = ""
    draining: bool = False
    num_policy_errors: int = 0
    policy_error: str = ""
    slowdown: float | None = None
    usual_slowdown: float | None = None
    profile: str = ""
    url: str = ""

    @property
    def open(self) -> bool:
        """Whether it gets new requests."""
        return self.up and not self.draining


@dataclass(frozen=True)
class LiveBatch:
    """A batch that is not at its end.

    Attributes:
        late_s: Predicted end after its window; none where no end is predicted.
        unsent_s: For how long its rows have had nobody to send them.
    """

    id: str
    name: str
    late_s: float | None = None
    unsent_s: float = 0.0


@dataclass(frozen=True)
class Receiver:
    """A webhook receiver.

    Attributes:
        failing_s: For how long no delivery succeeded; none where the last one did.
        disabled: Nothing is sent to it any more.
        num_waiting: Deliveries that wait for it.
    """

    name: str
    failing_s: float | None = None
    disabled: bool = False
    num_waiting: int = 0


@dataclass(frozen=True)
class Disk:
    """The disk below `COSERVE_HOME`."""

    total_bytes: int
    free_bytes: int

    @property
    def used_share(self) -> float:
        """0 to 1."""
        return 1.0 - self.free_bytes / max(1, self.total_bytes)


_NO_ROOM = "Writes failed for want of room; batches wait until there is some, chat goes on."
FULL: Final = {
    "database": ("The database is full", _NO_ROOM),
    "files": ("The file store is full", _NO_ROOM),
    "files_away": (
        "The file store cannot be used",
        "Its disk takes no writes, or its bucket refuses or is out of reach. Uploads are refused"
        " and batches wait, chat goes on.",
    ),
}
"""What is said of each place in `Facts.full`, and the cause."""


@dataclass(frozen=True)
class Facts:
    """Everything that a verdict needs. None is what could not be asked, and nothing is said of it.

    Attributes:
        engines: Those in use, draining ones too.
        look_backs: In the order of `LOOK_BACKS`; none where the history cannot be read.
        targets_s: Of `ttft` and `tbt`, as far as engines name them.
        batches: Live ones whose window ends first.
        num_live: All live batches.
        full: `files` or `database` where writes fail for want of room; `files_away` for whatever
            else.
        sweep_age_s: Since the last sweep of the workers; none before the first.
        heartbeat_age_s: Of the dispatcher heard of last; none where there is none.
        stage_wait_s: For how long the oldest batch has waited for a worker.
        loops_down: Loops of this gateway that keep failing.
        num_unusable: Engines that are registered at what is no address.
    """

    engines: Sequence[Engine] = ()
    look_backs: Sequence[LookBack] | None = None
    targets_s: Mapping[str, float] = field(default_factory=dict)
    harvest: Harvest | None = None
    batches: Sequence[LiveBatch] | None = None
    num_live: int = 0
    receivers: Sequence[Receiver] = ()
    disk: Disk | None = None
    full: Sequence[str] = ()
    database_answers: bool = True
    database_takes_writes: bool = True
    broker_answers: bool = True
    sweep_age_s: float | None = None
    heartbeat_age_s: float | None = None
    stage_wait_s: float | None = None
    loops_down: Sequence[str] = ()
    num_unusable: int = 0
