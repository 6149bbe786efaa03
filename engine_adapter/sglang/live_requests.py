"""The requests of this engine, as SGLang knows them and as policies see them, side by side.

SGLang keeps a waiting queue, one running batch and one half-prefilled request. Co-serving needs
more states than that, so this table owns every request that holds a slot::

    waiting_queue ──start──► holding: prefilling | decoding | restoring ──forget──► gone
          ▲                       │
          └───────retract─────────┘

Being in the running step or parked makes no difference here: a parked request keeps slot and KV.
``HoldingView`` shows the holding requests to those parts of SGLang that expect a running batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from engine_adapter.scheduling.plan import StepPlan
from engine_adapter.scheduling.request import Phase, Request, RequestClass
from engine_adapter.scheduling.roster import Roster

# --- Which class a request belongs to, read from the fields that survive SGLang's IPC.
#
# The gateway sets them and strips whatever a client sent:
#
#     priority        >= 0 or absent: online      < 0: flex or offline
#     custom_params   {"coserve": {"class": "flex", "deadline_in_s": 3600.0, "batch": "batch_..."}}

FLEX_PRIORITY = -1


@dataclass(frozen=True, slots=True)
class RequestTerms:
    """Class, deadline and batch of one request.

    Attributes:
        request_class: Online, flex or offline.
        deadline_in_s: Seconds from arrival to the end of the completion window.
        batch_id: Batch the request belongs to; empty for online.
    """

    request_class: RequestClass
    deadline_in_s: float = math.inf
    batch_id: str = ""


def classify(priority: int | None, custom_params: Any) -> RequestTerms:
    """Read class, deadline and batch.

    The sign of ``priority`` decides between online and the rest even if the detail is missing or
    malformed: a request must never become online by sending garbage.
    """
    if priority is None or priority >= 0:
        return RequestTerms(RequestClass.ONLINE)
    detail = custom_params.get("coserve") if isinstance(custom_params, dict) else None
    if not isinstance(detail, dict):
        detail = {}
    flex = priority == FLEX_PRIORITY or detail.get("class") == "flex"
    deadline = detail.get("deadline_in_s", math.inf)
    if not isinstance(deadline, int | float) or math.isnan(deadline):
        deadline = math.inf
    return RequestTerms(
        RequestClass.FLEX if flex else RequestClass.OFFLINE,
        float(deadline),
        str(detail.get("batch", "")),
    )


# --- The table.


@dataclass(slots=True, eq=False)
class LiveRequest:
    """One live request.

    Invariant while it holds a slot: ``request.computed_tokens`` equals SGLang's
    KV length of ``req`` once the step that is being launched has been composed.

    Attributes:
        req: SGLang's request object.
        request: What policies see.
        pending: Launched steps of this request whose result SGLang has not processed yet.
        is_online: Whether the request is latency-bound.
        last_token_at_s: When it last got a token, monotonic clock; None: not yet.
        had_tokens: KV length at its longest before a retract: below it nothing is computed first.
    """

    req: Any
    request: Request
    pending: int = 0
    is_online: bool = field(init=False)
    last_token_at_s: float | None = None
    had_tokens: int = 0

    def __post_init__(self) -> None:
        """The class of a request never changes."""
        self.is_online = self.request.is_online

    @property
    def rid(self) -> str:
        """Engine-wide request id."""
        return self.request.rid

    def processed(self) -> None:
        """The result of a step with this request was processed, or will never come."""
        self.pending -= 1
        self.request.in_flight = self.pending > 0


class LiveRequests:
    """All live requests by id; keeps the roster and SGLang's requests in step."""

    def __init__(self) -> None:
        self.roster = Roster()
        self._requests: dict[str, LiveRequest] = {}
        self._holding: dict[str, LiveRequest] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, rid: object) -> bool:
        return rid in self._requests

    def __getitem__(self, rid: str) -> LiveRequest:
        return self._requests[rid]

    def get(self, rid: str) -> LiveRequest | None:
        """The request, or None if it is not live."""
        return self._requests.get(rid)

    def __iter__(self) -> Iterator[LiveRequest]:
        return iter(self._requests.values())

    @property
    def by_id(self) -> Mapping[str, LiveRequest]:
        """All live requests by id."""
        return self._requests

    @property
    def holding(self) -> dict[str, LiveRequest]:
        """Requests that hold a request slot, in the order they got it."""
        return self._holding

    def add(self, live: LiveRequest) -> None:
        """Take in a request that entered the waiting queue for the first time."""
        self.roster.add(live.request)
        self._requests[live.rid] = live

    def start(self, live: LiveRequest, phase: Phase) -> None:
        """The request has been given a slot."""
        self.roster.start(live.rid, phase)
        self._holding[live.rid] = live

    def retract(self, live: LiveRequest) -> None:
        """The request gave its slot back and waits again."""
        self.roster.retract(live.rid)
        del self._holding[live.rid]

    def undo_start(self, live: LiveRequest, phase: Phase) -> None:
        """A stopped step gave the request its slot; it waits again in the phase it had."""
        self.roster.undo_start(live.rid, phase)
        del self._holding[live.rid]

    def forget(self, rid: str) -> LiveRequest | None:
        """The request is over; None if it was not live."""
        live = self._requests.pop(rid, None)
        if live is not None:
            self._holding.pop(rid, None)
            self.roster.finish(rid)
        return live


class HoldingView:
    """Every request that holds a slot, in the shape of SGLang's running batch.

    Memory checks, load reports, aborts and the idle test of SGLang read ``reqs`` of the running
    batch; with this view they see parked and half-prefilled requests too.
    """

    def __init__(self, requests: LiveRequests) -> None:
        self._requests = requests
        self.batch_is_full = False
        self.is_prefill_only = False
        self.return_logprob = False

    @property
    def reqs(self) -> list[Any]:
        """SGLang's request objects."""
        return [live.req for live in self._requests.holding.values()]

    def is_empty(self) -> bool:
        """Whether no request holds a slot."""
        return not self._requests.holding

    def batch_size(self) -> int:
        """Number of requests that hold a slot."""
        return len(self._requests.holding)


class PendingPrefill:
    """All half-prefilled requests as one, for SGLang's count of tokens still to be prefilled."""

    def __init__(self, requests: LiveRequests) -> None:
        self._requests = requests

    prefix_indices: tuple[()] = ()
    prefix_len = 0

    @property
    def seqlen(self) -> int:
        """Prompt tokens still to be computed by requests that hold a slot."""
        return sum(
            live.request.remaining_tokens
            for live in self._requests.holding.values()
            if live.request.phase is Phase.PREFILL
        )


# --- What was launched, request by request: enough to undo it, or to skip requests when its result
# comes.

FLEX = RequestClass.FLEX


@dataclass(slots=True, eq=False)
class DecodeSpan:
    """KV positions ``[start, end)`` one decoding request computes in one step.

    Attributes:
        live: The request.
        start: KV length before the step.
        end: KV length after it.
    """

    live: LiveRequest
    start: int
    end: int
    decode: ClassVar[bool] = True
    fresh: ClassVar[bool] = False
    middle: ClassVar[bool] = False


@dataclass(slots=True, eq=False)
class ChunkSpan:
    """KV positions ``[start, end)`` of a prompt one step computes.

    Attributes:
        live: The request.
        start: KV length before the step.
        end: KV length after it.
        fresh: The step gave the request its slot.
        middle: A chunk that is not the last one: its sampled token is thrown away.
        cached_tokens: SGLang's prefix-hit statistic before the step, restored on undo.
        already_computed: Likewise.
        breakdown_computed: Likewise.
    """

    live: LiveRequest
    start: int
    end: int
    fresh: bool
    middle: bool
    cached_tokens: int
    already_computed: int
    breakdown_computed: bool
    decode: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class KeptTokens:
    """Tokens that a step computed and kept, of requests that were not dropped.

    Attributes:
        online: For online requests.
        offline: For flex and offline requests.
        flex: Those of ``offline`` for flex requests.
        recomputed_online: Those of ``online`` that had been computed before a retract.
        recomputed_offline: Likewise those of ``offline``.
    """

    online: int
    offline: int
    flex: int
    recomputed_online: int
    recomputed_offline: int


@dataclass(slots=True, eq=False)
class LaunchedStep:
    """One step between its composition and the processing of its result.

    Batch order, as in ``batch.reqs``: chunks first, then decoding requests.

    Attributes:
        plan: The plan it carries out.
        batch: SGLang's batch object.
        chunks: One per chunk.
        decodes: The decoding requests.
        ends: KV length of each decoding request after the step; it computes one token.
        started_at_s: Launch, monotonic clock.
        measure: Gives the duration of the forward pass once its result is there.
        measured_s: What it gave.
        gap: Gives how long the device stood still before the pass, which waited for the results of
            the one before: where the pass may lose requests that are not online.
        stopped_at_layer: Layer of an abort or a drop.
        freed_after_s: Waits for the device that was stopped to be free, and gives the time from the
            stop word to there.
        flag_to_stop_s: What it gave.
        online_gap_s: Longest gap between two tokens of an online request that it gave one.
        dropped: Batch positions whose work was undone.
        result: What SGLang gave for the launched pass.
        is_launched: Its requests wait for a result.
        failure: What it raised; everything it reserved is given back then.
        is_final: Something of it cannot be taken back: a token was relayed, or the prefix tree has
            a slot that its pass was to write.
        lives: All requests, in batch order.
    """

    plan: StepPlan
    batch: Any
    chunks: list[ChunkSpan]
    decodes: list[LiveRequest]
    ends: list[int]
    started_at_s: float = 0.0
    measure: Callable[[], float] = float
    measured_s: float = 0.0
    gap: Callable[[], float] | None = None
    stopped_at_layer: int | None = None
    freed_after_s: Callable[[], float] = float
    flag_to_stop_s: float = 0.0
    online_gap_s: float = 0.0
    dropped: set[int] = field(default_factory=set)
    result: Any = None
    is_launched: bool = False
    failure: Exception | None = None
    is_final: bool = False
    lives: list[LiveRequest] = field(init=False)
    _spans: list[DecodeSpan | ChunkSpan] | None = None
    _offline_positions: list[int] | None = None

    def __post_init__(self) -> None:
        """Put the requests in batch order."""
        self.lives = [*[span.live for span in self.chunks], *self.decodes]

    def launched(self) -> None:
        """The step is launched: its requests wait for its result."""
        self.is_launched = True
        for live in self.lives:
            live.pending += 1
            live.request.in_flight = True

    def processed(self) -> list[LiveRequest]:
        """The result of the step was processed; the requests whose work counts."""
        kept = [self.lives[i] for i in self.kept_positions]
        for live in kept:
            live.processed()
        return kept

    @property
    def spans(self) -> list[DecodeSpan | ChunkSpan]:
        """One per request; made when first asked for, since few steps are stopped."""
        if self._spans is None:
            starts = [end - 1 for end in self.ends]
            self._spans = [*self.chunks, *map(DecodeSpan, self.decodes, starts, self.ends)]
        return self._spans

    @property
    def offline_positions(self) -> list[int]:
        """Batch positions of flex and offline requests."""
        if self._offline_positions is None:
            self._offline_positions = [i for i, live in enumerate(self.lives) if not live.is_online]
        return self._offline_positions

    @property
    def kept_positions(self) -> list[int]:
        """Batch positions whose work counts."""
        return [i for i in range(len(self.lives)) if i not in self.dropped]

    @property
    def unfinished_prompts(self) -> frozenset[str]:
        """Kept requests whose chunk was not their last one: they have nothing to say yet."""
        spans = enumerate(self.chunks)
        return frozenset(
            span.live.rid for i, span in spans if span.middle and i not in self.dropped
        )

    @property
    def is_as_planned(self) -> bool:
        """Whether it computes what was planned: a prefix hit or an end may have come between."""
        num_tokens = sum(span.end - span.start for span in self.chunks) + len(self.decodes)
        return num_tokens == self.plan.num_tokens

    def kept_tokens(self) -> KeptTokens:
        """What it computed and what of that counts."""
        return KeptTokens(
            online=self.tokens(online=True),
            offline=self.tokens(online=False),
            flex=self._flex_tokens(),
            recomputed_online=self._recomputed_tokens(online=True),
            recomputed_offline=self._recomputed_tokens(online=False),
        )

    def tokens(self, *, online: bool) -> int:
        """Tokens computed and kept for one side."""
        num_chunks = len(self.chunks)
        num_tokens = sum(
            span.end - span.start
            for i, span in enumerate(self.chunks)
            if i not in self.dropped and span.live.is_online is online
        )
        offline = [i for i in self.offline_positions if i >= num_chunks]
        num_decodes = len(self.decodes) - len(offline) if online else len(offline)
        dropped = [i for i in self.dropped if i >= num_chunks]
        return num_tokens + num_decodes - sum(self.lives[i].is_online is online for i in dropped)

    def _flex_tokens(self) -> int:
        """Tokens computed and kept for flex requests."""
        flex = [i for i in self.offline_positions if self.lives[i].request.request_class == FLEX]
        num_chunks = len(self.chunks)
        return sum(
            self.chunks[i].end - self.chunks[i].start if i < num_chunks else 1
            for i in flex
            if i not in self.dropped
        )

    def _recomputed_tokens(self, *, online: bool) -> int:
        """Those of them that had been computed before a retract."""
        return sum(
            max(0, min(span.end, span.live.had_tokens) - span.start)
            for i, span in enumerate(self.chunks)
            if i not in self.dropped and span.live.is_online is online
        )
