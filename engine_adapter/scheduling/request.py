"""One request as a policy sees it.

Token positions of a request, left to right::

    0 ............ computed_tokens ............ fill_tokens
    |  KV on device |  still to be computed     |  then one token per step

A decoding request is always one token behind: its newest token has no KV yet, and computing that
one token delivers the next. There is no prefill and no decode for a policy beyond that distance.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import NamedTuple

# --- How many device pages requests make available when they are retracted together.
#
# A page of a prefix that several requests have in common comes free with the last of them:
#
#     prefix tree                  retract a       retract a and b
#     [system prompt: 40 pages]    still held      free
#        |- a: 3 pages             free            free
#        `- b: 5 pages             held by b       free


class SharedPages(NamedTuple):
    """Pages of a request that others hold too.

    Attributes:
        node: Names the pages: equal for all requests that hold them.
        pages: How many.
        holders: How many requests hold them, the request included.
    """

    node: int
    pages: int
    holders: int


class Release:
    """The pages of requests that give up theirs together, in any order."""

    def __init__(self, before: Release | None = None) -> None:
        """Nobody has given up anything, or only those who had ``before``."""
        self._holders: dict[int, int] = dict(before._holders) if before else {}

    def add(self, request: Request) -> int:
        """The request gives up its pages; how many more are available with that."""
        gained = request.freeable_pages
        for part in request.shared:
            holders = self._holders.get(part.node, part.holders) - 1
            self._holders[part.node] = holders
            if holders == 0:
                gained += part.pages
        return gained

    def frees_part_of(self, request: Request) -> bool:
        """Whether pages are available because this request, among others, gave them up."""
        return request.freeable_pages > 0 or any(
            self._holders.get(p.node) == 0 for p in request.shared
        )


class RequestClass(enum.IntEnum):
    """Who waits for the answer; a smaller value is served first."""

    ONLINE = 0
    FLEX = 1
    OFFLINE = 2


class Phase(enum.IntEnum):
    """Where a request stands inside the engine.

    WAITING and RETRACTED hold no request slot. A request is *parked* when it is in PREFILL or
    DECODE and the running step does not contain it: parking is not a phase, the KV stays.
    """

    WAITING = 0
    PREFILL = 1
    DECODE = 2
    RETRACTED = 3
    RESTORING = 4


SLOT_PHASES = frozenset({Phase.PREFILL, Phase.DECODE, Phase.RESTORING})


@dataclass(slots=True, eq=False)
class Request:
    """State of one live request. Only a port writes it; a policy reads it.

    All counts include steps already launched, even if their result is not processed yet.

    Attributes:
        rid: Engine-wide request id.
        request_class: Online, flex or offline.
        prompt_tokens: Length of the prompt.
        fill_tokens: Tokens known so far when the request last began to fill: its prompt, or after a
            retract its prompt and every token it has delivered. The chunk that reaches it delivers
            the next token.
        max_output_tokens: Upper bound of the answer's length.
        arrival_at_s: Instant of arrival (monotonic clock of the port).
        deadline_at_s: End of the completion window; infinite when there is none.
        batch_id: Batch the request belongs to, for fairness; empty for online.
        sequence: Position in arrival order, unique.
        phase: Where the request stands.
        computed_tokens: Tokens with KV on the device, a prefix hit included.
        cached_tokens: Expected prefix hit while WAITING or RETRACTED.
        output_tokens: Tokens delivered so far.
        device_pages: Device pages mapped by the request, shared ones included.
        shared: Those of them that other requests hold too.
        host_pages: Committed host checkpoint pages, always a prefix of the request.
        host_tokens: Tokens those pages hold; less than ``host_pages`` full pages when the last
            one was copied at a retract.
        host_pages_pending: Host pages whose copy is under way, following the committed ones.
        restored_pages: Host pages already ordered back to the device while RESTORING.
        in_flight: A launched step of this request is not processed yet; it cannot be retracted.
        can_mix: The request may share a step with prefill chunks (false with logprobs and the
            like).
        expected_output_tokens: Length a predictor expects of the whole answer; 0 if none was asked.
            All that is known of it: the true length shows when the answer ends.
        first_token_at_s: Instant at which its first token came; negative before.
    """

    rid: str
    request_class: RequestClass
    prompt_tokens: int
    fill_tokens: int
    max_output_tokens: int = 1 << 30
    arrival_at_s: float = 0.0
    deadline_at_s: float = math.inf
    batch_id: str = ""
    sequence: int = 0
    phase: Phase = Phase.WAITING
    computed_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    device_pages: int = 0
    shared: tuple[SharedPages, ...] = ()
    host_pages: int = 0
    host_tokens: int = 0
    host_pages_pending: int = 0
    restored_pages: int = 0
    in_flight: bool = False
    can_mix: bool = True
    expected_output_tokens: int = 0
    first_token_at_s: float = -1.0

    @property
    def is_online(self) -> bool:
        """Whether the request is latency-bound."""
        return self.request_class is RequestClass.ONLINE

    @property
    def holds_slot(self) -> bool:
        """Whether the request occupies a request slot."""
        return self.phase in SLOT_PHASES

    @property
    def start_tokens(self) -> int:
        """Position of the next token to compute."""
        return self.computed_tokens if self.holds_slot else self.cached_tokens

    @property
    def remaining_tokens(self) -> int:
        """Prompt tokens still to be computed before the request decodes."""
        return self.fill_tokens - self.start_tokens

    @property
    def freeable_pages(self) -> int:
        """Device pages that become available when the request alone is retracted."""
        return max(0, self.device_pages - sum(part.pages for part in self.shared))


def waiting_key(request: Request) -> tuple[int, bool, float, int]:
    """Sort key of waiting flex and offline requests, next to be admitted first.

    Flex before offline; in each class retracted requests before new ones, because their KV waits on
    the host; then the deadline; then arrival.
    """
    return (
        request.request_class,
        request.phase is not Phase.RETRACTED,
        request.deadline_at_s,
        request.sequence,
    )


def running_key(request: Request) -> tuple[int, float, int]:
    """Sort key of slot holders, most important first; online requests go by arrival alone."""
    if request.request_class is RequestClass.ONLINE:
        return (0, 0.0, request.sequence)
    return (request.request_class, request.deadline_at_s, request.sequence)


def pages_for(num_tokens: int, page_tokens: int) -> int:
    """Pages needed to hold ``num_tokens`` tokens."""
    return -(-num_tokens // page_tokens)


def new_pages(request: Request, num_tokens: int, page_tokens: int) -> int:
    """Available device pages that ``num_tokens`` more tokens of ``request`` take.

    A prefix hit of a request without a slot is counted too: those pages are evictable until the
    request starts and locked afterwards.
    """
    pages = -(-(request.start_tokens + num_tokens) // page_tokens) - request.device_pages
    return pages if pages > 0 else 0


def pages_cut(request: Request, keep_tokens: int, host_page_tokens: int) -> tuple[int, int]:
    """Host pages moved and claimed when all but a request's first tokens leave the device."""
    on_host = pages_for(request.computed_tokens, host_page_tokens)
    # Of one that lost its end before, what is left need not be on the host, claimed as it is.
    noted = 0 if request.phase is Phase.RESTORING else request.host_pages
    moved = on_host - max(noted, keep_tokens // host_page_tokens)
    return moved, max(0, on_host - request.host_pages)
