"""What a policy is shown before each step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul, sub

from engine_adapter.scheduling.plan import SafepointMode
from engine_adapter.scheduling.request import Request, RequestClass
from engine_adapter.scheduling.targets import Slo

# --- Requests that wait for their next token, with what every step asks of all of them.
#
# A full step holds hundreds of decoding requests, and planning, pricing and checking it all need
# the same few numbers of each. They are read once, when the snapshot is taken.


class Column:
    """One number per request, and what those in front add up to.

    Attributes:
        numbers: In request order.
        total: Their sum.
    """

    __slots__ = ("_sums", "numbers", "total")

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = numbers
        self.total = sum(numbers)
        self._sums: list[int] | None = None

    @property
    def sums(self) -> list[int]:
        """``sums[n]`` is what the first ``n`` add up to; made when first asked for."""
        if self._sums is None:
            self._sums = [0, *accumulate(self.numbers)]
        return self._sums

    def front(self, num_requests: int) -> int:
        """What the first ``num_requests`` add up to."""
        return self.total if num_requests == len(self.numbers) else self.sums[num_requests]


class DecodeReady:
    """Decoding requests of one side, online or not, in the order a step takes them.

    Invariant: true of the requests from the snapshot until its plan is applied, since only a port
    writes requests, and only then.

    Args:
        requests: The requests.
        page_tokens: Tokens per device page.
        before: Ready requests of an earlier snapshot; what never changes is taken from there if the
            requests are the same.

    Attributes:
        requests: The requests.
        rids: Their ids.
        can_mix: Whether all of them may share a step with prefill chunks.
        is_online: Their side; false if there are none.
        lengths: Tokens of each request with the one it computes next.
        squares: The squares of the lengths.
        pages: New device pages each takes; a request that holds too many gives none back.
    """

    __slots__ = ("can_mix", "is_online", "lengths", "pages", "requests", "rids", "squares")

    rids: tuple[str, ...]
    can_mix: bool

    def __init__(
        self, requests: list[Request], page_tokens: int, before: DecodeReady | None = None
    ) -> None:
        self.requests = requests
        if before is not None and before.requests == requests:
            self.rids, self.can_mix = before.rids, before.can_mix
        else:
            self.rids = tuple([request.rid for request in requests])
            self.can_mix = all(request.can_mix for request in requests)
        self.is_online = bool(requests) and requests[0].request_class is RequestClass.ONLINE
        lengths = [request.computed_tokens + 1 for request in requests]
        held = [request.device_pages for request in requests]
        # A page of one token, SGLang's usual size, spares hundreds of divisions.
        whole = lengths if page_tokens == 1 else [-(-num // page_tokens) for num in lengths]
        pages = list(map(sub, whole, held))
        if pages and min(pages) < 0:
            pages = [max(0, num) for num in pages]
        self.lengths = Column(lengths)
        self.squares = Column(list(map(mul, lengths, lengths)))
        self.pages = Column(pages)

    def __len__(self) -> int:
        return len(self.requests)

    def front(self, num_requests: int) -> tuple[int, int]:
        """What lengths and squares of the first ``num_requests`` add up to."""
        return self.lengths.front(num_requests), self.squares.front(num_requests)


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
        reserved_slots: Slots requests that are not online may never hold.
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
        max_chunk_tokens: Most prompt tokens in one step, all requests together.
        max_batch_size: Most requests in one step.
        can_mix: Decoding requests and prefill chunks may share a step.
        prefill_safepoints: A pure-offline prefill step can be aborted between layers.
        decode_safepoints: A step of offline decoding requests alone can be aborted and undone; with
            prompt tokens beside them it is ``prefill_safepoints`` that counts.
        request_drop: The offline requests of a mixed step can be dropped between layers.
        cuts: The end of a request's KV can be taken and its beginning kept; the simulator can.
        retracts_in_flight: A request can be retracted while its last result is on its way, which is
            thrown away then: what SGLang does by itself. The simulator can.
        eager_modes: Steps with prompt tokens that are armed so run outside captured graphs.
        num_layers: Decoder layers, for turning an interval in seconds into layers.
    """

    max_chunk_tokens: int = 512
    max_batch_size: int = 1 << 30
    can_mix: bool = True
    prefill_safepoints: bool = False
    decode_safepoints: bool = False
    request_drop: bool = False
    cuts: bool = False
    retracts_in_flight: bool = False
    eager_modes: frozenset[SafepointMode] = frozenset()
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


# --- How many host pages one step may copy, and how long its pass then waits for the link.
#
# Copies go through two staging buffers on the device. What is more than they hold makes the stream
# of the passes wait for the link, before the pass and where no safepoint can end it::
#
#     link        | window 0 | window 1 | window 2 | window 3 |
#     passes           gather 2 waits for 0 .. gather 3 .. | the step's pass
#
# So copies are bounded in every step: beside online requests by a small part of the time between
# their tokens, and without any by a part of what a first token may take, since a prompt that
# arrives meanwhile waits for all of it.

SHARE_OF_TBT = 0.05
SHARE_OF_TTFT = 0.1
# The paper's 37 GB/s, rounded up.
LINK_BYTES_PER_S = 40e9


def copy_pages(slo: Slo, *, beside_online: bool, page_bytes: int, page_cpu_s: float) -> int:
    """Host pages one step may copy, at least one.

    Args:
        slo: Targets of the online class.
        beside_online: Whether online requests run.
        page_bytes: Size of a host page.
        page_cpu_s: What a page has cost the host so far, where the host copies.
    """
    wait_s = SHARE_OF_TBT * slo.tbt_s if beside_online else SHARE_OF_TTFT * slo.ttft_s
    return max(1, int(wait_s / max(page_cpu_s, max(1, page_bytes) / LINK_BYTES_PER_S)))


def link_wait_s(num_pages: int, page_bytes: int, staged_bytes: int) -> float:
    """How long a pass waits for the copies of its step.

    Args:
        num_pages: Host pages copied, in both directions.
        page_bytes: Size of one.
        staged_bytes: What the staging buffers hold.
    """
    return max(0, num_pages * page_bytes - staged_bytes) / LINK_BYTES_PER_S


# --- All of it.


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The engine's state just before a step is planned.

    The collections are live views kept by a :class:`~engine_adapter.scheduling.roster.Roster`, not
    copies: they are valid until the port applies the plan.

    Attributes:
        step_id: Number of the step to plan; strictly increasing.
        now_s: Instant at which the snapshot was taken (monotonic clock of the port).
        slo: Targets of the online class.
        resources: Pages, slots and copy budget.
        limits: What the executor can do.
        requests: Every live request by id.
        running: Requests that hold a slot, in the order they got it.
        online_running: The online requests among them, in the same order.
        offline_running: The flex and offline requests among them, sorted by
            :func:`~engine_adapter.scheduling.request.running_key`: most important first.
        online_waiting: Online requests without a slot, in arrival order.
        offline_waiting: Flex and offline requests without a slot, sorted by
            :func:`~engine_adapter.scheduling.request.waiting_key`: next to be admitted first.
        online_ready: Decoding requests of ``online_running``, read once.
        offline_ready: Decoding requests of ``offline_running``, read once.
        overhead_s: Time between two forward passes as the port measures it; part of every gap
            between tokens, so it is taken off every budget.
        armed_gap_s: Time a device stands still before a step that may be stopped: its launch waits
            for the results of the step before. Part of such a gap between tokens alone.
        offline_waiting_version: Changes whenever ``offline_waiting`` does.
    """

    step_id: int
    now_s: float
    slo: Slo
    resources: Resources
    limits: EngineLimits
    requests: Mapping[str, Request]
    running: Collection[Request]
    online_running: Collection[Request]
    offline_running: Sequence[Request]
    online_waiting: Collection[Request]
    offline_waiting: Sequence[Request]
    online_ready: DecodeReady
    offline_ready: DecodeReady
    overhead_s: float = 0.0
    armed_gap_s: float = 0.0
    offline_waiting_version: int = 0
