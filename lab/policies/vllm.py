"""vLLM as its paper has it (Kwon and others, SOSP 2023, sections 4.3 to 4.5; EcoServe, section 4).

First come, first served; pages are given out as tokens come. Prompts go before decoding requests,
in steps of their own and uncut. A request begins once its prompt has pages and one in a hundred
stays free. Short of pages, the request that came last gives way: ``vllm`` computes it again,
``vllm_swap`` copies it to the host and fetches it when there is room.
"""

from __future__ import annotations

from heapq import merge

from engine_adapter.scheduling.builder import UNBOUNDED_S
from engine_adapter.scheduling.plan import StepPlan
from engine_adapter.scheduling.policies.base import PolicyBase
from engine_adapter.scheduling.ranked import Ranked, arrival
from engine_adapter.scheduling.request import Request
from engine_adapter.scheduling.snapshot import Snapshot

WATERMARK = 0.01


class Vllm(PolicyBase):
    """Paged memory without priorities; who came last is computed again.

    ``kept`` is the share of memory that stays free when a request begins.
    """

    name = "vllm"
    swaps = False
    kept = WATERMARK

    def plan(self, snapshot: Snapshot) -> StepPlan:
        """A step of prompts if any can begin, else a token for everyone."""
        builder = self._builder(snapshot)
        kept = int(self.kept * snapshot.resources.total_pages) * builder.page_tokens

        def room(request: Request) -> int:
            # Those that run have no claim beyond what they have.
            return request.computed_tokens if request.holds_slot else request.fill_tokens + 1 + kept

        ranked = Ranked(builder, reserve=room, swaps=self.swaps)
        waiting = self.in_order(snapshot)
        if builder.pages_left > len(ranked.holders):
            ranked.take_prompts(waiting, whole=True)
        if not builder.has_chunks:
            ranked.take_decode()
        ranked.go_on(waiting)
        return builder.build(UNBOUNDED_S)

    def in_order(self, snapshot: Snapshot) -> list[Request]:
        """Those that wait, by arrival; who gave way comes back before anyone begins anew."""
        offline = sorted(snapshot.offline_waiting, key=arrival)
        waiting = list(merge(snapshot.online_waiting, offline, key=arrival))
        waiting.sort(key=lambda request: not request.output_tokens)
        return waiting


class VllmSwap(Vllm):
    """The same; who came last is copied to the host."""

    name = "vllm_swap"
    swaps = True
