"""What a policy is shown before each step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from engine_adapter.core.ready import ReadyRows
from engine_adapter.core.request import RequestRow
from engine_adapter.core.slo import Slo


@dataclass(frozen=True, slots=True)
class Resources:
    """Countable things a step may use up.

    Attributes:
        page_tokens: Tokens per device page.
        host_page_tokens: Tokens per host checkpoint page.
        total_pages: Device pages of the KV pool.
        free_pages: Device pages nobody maps.
        evictable_pages: Device pages only the prefix tree maps; they may be taken.
        locked_pages: Device pages of live requests.
        host_total_pages: Size of the host pool in host pages.
        host_free_pages: Host pages not in use.
        total_slots: Request slots of the engine.
        free_slots: Slots nobody holds.
        reserved_slots: Slots rows that are not online may never hold.
        copy_pages_per_step: Host pages the interconnect can move during one step without
            delaying it, both directions together.
    """

    page_tokens: int
    host_page_tokens: int
    total_pages: int
    free_pages: int
    evictable_pages: int = 0
    locked_pages: int = 0
    host_total_pages: int = 0
    host_free_pages: int = 0
    total_slots: int = 1
    free_slots: int = 0
    reserved_slots: int = 0
    copy_pages_per_step: int = 0

    @property
    def available_pages(self) -> int:
        """Device pages a step may claim without retracting anyone."""
        return self.free_pages + self.evictable_pages


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What the executor can do; constant while the engine runs.

    Attributes:
        max_chunk_tokens: Most prompt tokens in one step, all rows together.
        max_batch_rows: Most rows in one step.
        can_mix: Decoding requests and prefill chunks may share a step.
        prefill_safepoints: A pure-offline prefill step can be aborted between layers.
        decode_safepoints: A step of offline decoding requests alone can be aborted and undone; with
            prompt tokens beside them it is ``prefill_safepoints`` that counts.
        row_drop: The offline requests of a mixed step can be dropped between layers.
        num_layers: Decoder layers, for turning an interval in seconds into layers.
    """

    max_chunk_tokens: int = 512
    max_batch_rows: int = 1 << 30
    can_mix: bool = True
    prefill_safepoints: bool = False
    decode_safepoints: bool = False
    row_drop: bool = False
    num_layers: int = 1


def reserved_slots(total_slots: int, share: float) -> int:
    """Slots kept for online requests: ``share`` of all, at least one, never all of them.

    Raises:
        ValueError: If ``share`` is outside ``[0, 1)``.
    """
    if not 0.0 <= share < 1.0:
        raise ValueError(f"reserved slot share is {share!r}; give a number in [0, 1)")
    if share == 0.0:
        return 0
    return min(total_slots - 1, max(1, round(total_slots * share)))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The engine's state just before a step is planned.

    The collections are live views kept by a :class:`~engine_adapter.core.roster.Roster`, not
    copies: they are valid until the port applies the plan.

    Attributes:
        step_id: Number of the step to plan; strictly increasing.
        now_s: Instant at which the snapshot was taken (monotonic clock of the port).
        slo: Targets of the online class.
        resources: Pages, slots and copy budget.
        limits: What the executor can do.
        rows: Every live row by id.
        running: Rows that hold a slot, in the order they got it.
        online_running: The online requests among them, in the same order.
        offline_running: The flex and offline requests among them, sorted by
            :func:`~engine_adapter.core.request.running_key`: most important first.
        online_waiting: Online requests without a slot, in arrival order.
        offline_waiting: Flex and offline requests without a slot, sorted by
            :func:`~engine_adapter.core.request.waiting_key`: next to be admitted first.
        online_ready: Decoding requests of ``online_running``, read once.
        offline_ready: Decoding requests of ``offline_running``, read once.
        overhead_s: Time between two forward passes as the port measures it; part of every gap
            between tokens, so it is taken off every budget.
        offline_waiting_version: Changes whenever ``offline_waiting`` does.
    """

    step_id: int
    now_s: float
    slo: Slo
    resources: Resources
    limits: EngineLimits
    rows: Mapping[str, RequestRow]
    running: Collection[RequestRow]
    online_running: Collection[RequestRow]
    offline_running: Sequence[RequestRow]
    online_waiting: Collection[RequestRow]
    offline_waiting: Sequence[RequestRow]
    online_ready: ReadyRows
    offline_ready: ReadyRows
    overhead_s: float = 0.0
    offline_waiting_version: int = 0
