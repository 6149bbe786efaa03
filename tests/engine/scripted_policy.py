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
    Restore,
    RunningStep,
    SafepointMode,
    Safepoints,
    StepPlan,
)
from engine_adapter.scheduling.request import Phase, Request
from engine_adapter.scheduling.snapshot import EngineLimits, Snapshot


@dataclass
class Wishes:
    """What the script wants different in one step."""

    park: set[str] = field(default_factory=set)
    retract: set[str] = field(default_factory=set)
    hold: set[str] = field(default_factory=set)  # do not start or fetch
    chunk: dict[str, int] = field(default_factory=dict)  # prompt tokens for a request
    fetch_pages: int = 1 << 20
    anew: set[str] = field(default_factory=set)  # compute again instead of fetching
    checkpoint: bool = False


class ScriptedPolicy:
    """Plans from wishes; stops are armed on every step that has offline requests."""

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
        restores: list[Restore] = []
        checkpoints: list[Checkpoint] = []
        parks: list[str] = []
        ran: list[Request] = []
        slots = snapshot.resources.free_slots
        running = sorted(
            snapshot.running, key=lambda request: (not request.is_online, request.sequence)
        )
        waiting = [*snapshot.online_waiting, *snapshot.offline_waiting]
        for request in running:
            if request.rid in wishes.retract and not request.in_flight:
                retracts.append(request.rid)
            elif request.rid in wishes.park:
                parks.append(request.rid)
            elif request.phase is Phase.DECODE:
                decode.append(request.rid)
                ran.append(request)
            elif request.phase is Phase.RESTORING:
                restores.append(self._fetch(request, wishes))
        for request in [r for r in running if r.phase is Phase.PREFILL] + waiting:
            if request.rid in wishes.hold | wishes.park | set(retracts):
                continue
            if (
                request.phase is Phase.RETRACTED
                and request.host_pages
                and request.rid not in wishes.anew
            ):
                if slots:
                    restores.append(self._fetch(request, wishes))
                    slots -= 1
                continue
            n = min(request.remaining_tokens, room, wishes.chunk.get(request.rid, 1 << 20))
            if n < request.remaining_tokens:
                n = (request.start_tokens + n) // snapshot.resources.page_tokens
                n = n * snapshot.resources.page_tokens - request.start_tokens
            if n <= 0 or (not request.holds_slot and not slots):
                continue
            slots -= not request.holds_slot
            room -= n
            prefill.append(Chunk(request.rid, n))
            ran.append(request)
        if wishes.checkpoint:
            size = snapshot.resources.host_page_tokens
            for request in running:
                have = request.host_pages
                new = request.computed_tokens // size - have
                if new > 0 and request.phase is not Phase.RESTORING and request.rid not in retracts:
                    checkpoints.append(Checkpoint(request.rid, have, new))
        return StepPlan(
            step_id=snapshot.step_id,
            decode=tuple(decode),
            prefill=tuple(prefill),
            parks=tuple(parks),
            retracts=tuple(retracts),
            checkpoints=tuple(checkpoints),
            restores=tuple(restores),
            safepoints=_armed(ran, snapshot.limits),
            predicted_s=1.0,
        )

    def at_arrival(self, arrival: Arrival, step: RunningStep) -> Decision:
        return self.decide(arrival, step)

    def observe(self, step: FinishedStep) -> None:
        self.finished.append(step)

    def _fetch(self, request: Request, wishes: Wishes) -> Restore:
        have = request.restored_pages if request.phase is Phase.RESTORING else 0
        return Restore(request.rid, have, min(wishes.fetch_pages, request.host_pages - have))


def _armed(ran: list[Request], limits: EngineLimits) -> Safepoints:
    offline = [request for request in ran if not request.is_online]
    can = limits.request_drop if len(offline) < len(ran) else limits.prefill_safepoints
    if not offline or not can:
        return Safepoints()
    mode = SafepointMode.DROP if len(offline) < len(ran) else SafepointMode.ABORT
    return Safepoints(mode, 1e-9)
