"""A policy that runs everything it can, except where a script says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine_adapter.scheduling.plan import (
    Arrival,
    Checkpoint,
    Chunk,
    Decision,
    FinishedStep,
    Prefetch,
    RunningStep,
    SafepointMode,
    Safepoints,
    StepPlan,
)
from engine_adapter.scheduling.request import Phase, RequestRow
from engine_adapter.scheduling.snapshot import Snapshot


@dataclass
class Wishes:
    """What the script wants different in one step."""

    park: set[str] = field(default_factory=set)
    retract: set[str] = field(default_factory=set)
    hold: set[str] = field(default_factory=set)  # do not start or fetch
    chunk: dict[str, int] = field(default_factory=dict)  # prompt tokens for a row
    fetch_pages: int = 1 << 20
    anew: set[str] = field(default_factory=set)  # compute again instead of fetching
    checkpoint: bool = False


class ScriptedPolicy:
    """Plans from wishes; stops are armed on every step that has offline rows."""

    name = "scripted"

    def __init__(self, wish: Callable[[Snapshot], Wishes] | None = None) -> None:
        self.wish = wish or (lambda snapshot: Wishes())
        self.finished: list[FinishedStep] = []
        self.decide: Callable[[Arrival, RunningStep], Decision] = lambda arrival, step: (
            Decision.CONTINUE
        )

    def plan(self, snapshot: Snapshot) -> StepPlan:  # noqa: C901
        wishes = self.wish(snapshot)
        room = snapshot.limits.max_chunk_tokens
        decode: list[str] = []
        prefill: list[Chunk] = []
        retracts: list[str] = []
        prefetches: list[Prefetch] = []
        checkpoints: list[Checkpoint] = []
        parks: list[str] = []
        ran: list[RequestRow] = []
        slots = snapshot.resources.free_slots
        running = sorted(snapshot.running, key=lambda row: (not row.is_online, row.sequence))
        waiting = [*snapshot.online_waiting, *snapshot.offline_waiting]
        for row in running:
            if row.rid in wishes.retract and not row.in_flight:
                retracts.append(row.rid)
            elif row.rid in wishes.park:
                parks.append(row.rid)
            elif row.phase is Phase.DECODE:
                decode.append(row.rid)
                ran.append(row)
            elif row.phase is Phase.PREFETCHING:
                prefetches.append(self._fetch(row, wishes))
        for row in [r for r in running if r.phase is Phase.PREFILL] + waiting:
            if row.rid in wishes.hold | wishes.park | set(retracts):
                continue
            if row.phase is Phase.RETRACTED and row.host_pages and row.rid not in wishes.anew:
                if slots:
                    prefetches.append(self._fetch(row, wishes))
                    slots -= 1
                continue
            n = min(row.remaining_tokens, room, wishes.chunk.get(row.rid, 1 << 20))
            if n < row.remaining_tokens:
                n = (row.start_tokens + n) // snapshot.resources.page_tokens
                n = n * snapshot.resources.page_tokens - row.start_tokens
            if n <= 0 or (not row.holds_slot and not slots):
                continue
            slots -= not row.holds_slot
            room -= n
            prefill.append(Chunk(row.rid, n))
            ran.append(row)
        if wishes.checkpoint:
            size = snapshot.resources.host_page_tokens
            for row in running:
                have = row.host_pages
                new = row.computed_tokens // size - have
                if new > 0 and row.phase is not Phase.PREFETCHING and row.rid not in retracts:
                    checkpoints.append(Checkpoint(row.rid, have, new))
        return StepPlan(
            step_id=snapshot.step_id,
            decode=tuple(decode),
            prefill=tuple(prefill),
            parks=tuple(parks),
            retracts=tuple(retracts),
            checkpoints=tuple(checkpoints),
            prefetches=tuple(prefetches),
            safepoints=_armed(ran),
            predicted_s=1.0,
        )

    def at_arrival(self, arrival: Arrival, step: RunningStep) -> Decision:
        return self.decide(arrival, step)

    def observe(self, step: FinishedStep) -> None:
        self.finished.append(step)

    def _fetch(self, row: RequestRow, wishes: Wishes) -> Prefetch:
        have = row.prefetched_pages if row.phase is Phase.PREFETCHING else 0
        return Prefetch(row.rid, have, min(wishes.fetch_pages, row.host_pages - have))


def _armed(ran: list[RequestRow]) -> Safepoints:
    offline = [row for row in ran if not row.is_online]
    if not offline:
        return Safepoints()
    mode = SafepointMode.DROP if len(offline) < len(ran) else SafepointMode.ABORT
    return Safepoints(mode, 1e-9)
