"""MultiRes: requests that fit compute and memory at once (EcoServe, section 2.2).

Of the requests that wait, those come first whose prompt and whose memory are nearest to what the
step and the pool have left, in shares of each (Euclidean distance, as in Tetris). Memory is taken
for the expected length of the answer, exactly; an answer that grows beyond it takes what is free.
"""

from __future__ import annotations

from engine_adapter.scheduling.builder import UNBOUNDED_S
from engine_adapter.scheduling.latency import LatencyModel
from engine_adapter.scheduling.plan import StepPlan
from engine_adapter.scheduling.policies.base import PolicyBase
from engine_adapter.scheduling.policies.ecoserve import UNKNOWN_TOKENS
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.ranked import Ranked
from engine_adapter.scheduling.request import Request
from engine_adapter.scheduling.snapshot import Snapshot

STARVED_S = 5.0
"""Who has waited longer comes first; else small requests never would beside large ones."""


def expected_end(request: Request) -> int:
    """Tokens of the request when it ends, as expected; more than it has in any case."""
    expected = request.prompt_tokens + (request.expected_output_tokens or UNKNOWN_TOKENS)
    return max(expected, request.fill_tokens + 1)


class MultiRes(PolicyBase):
    """Fills step and memory together."""

    name = "multires"
    expects_lengths = True

    def __init__(self, model: LatencyModel, settings: PolicySettings | None = None) -> None:
        """Bind the latency model and the knobs."""
        super().__init__(model, settings)
        self._last_was_prompts = False

    def plan(self, snapshot: Snapshot) -> StepPlan:
        """All that decode, then the prompts that fit best."""
        builder = self._builder(snapshot)
        ranked = Ranked(builder, reserve=expected_end)
        num_decode = len(snapshot.online_ready) + len(snapshot.offline_ready)
        tokens = max(1, builder.chunk_left - num_decode)
        pool = max(1, builder.pages_left * builder.page_tokens)

        def distance(request: Request) -> tuple[float, int]:
            compute = 1.0 - min(1.0, request.remaining_tokens / tokens)
            memory = 1.0 - min(1.0, expected_end(request) / pool)
            starved = snapshot.now_s - request.arrival_at_s > STARVED_S
            return (0.0 if starved else compute * compute + memory * memory, request.sequence)

        waiting = sorted([*snapshot.online_waiting, *snapshot.offline_waiting], key=distance)
        if ranked.mixes:
            ranked.take_decode()
        if (ranked.mixes or not self._last_was_prompts) and not builder.retracted:
            ranked.take_prompts(waiting)
        if not builder.has_chunks:
            ranked.take_decode()
        self._last_was_prompts = builder.has_chunks and not builder.has_decode
        ranked.go_on(waiting)
        return builder.build(UNBOUNDED_S)
