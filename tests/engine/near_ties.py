"""Where two tokens were nearly alike, so that either may follow: on a card, in bfloat16.

Kernels round otherwise for another number of rows, so an answer that was computed in other company
may take the other of two near tokens there, and goes on differently. Such a place is told from a
wrong key or value by how far the two best tokens lie apart. What a row's logits show is noted on
the device, without waiting for it; on a CPU nothing is noted and answers have to be equal.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

NEAR = 1 / 32
"""Of the best token's logit: eight of the last bits of a bfloat16."""


class NearTies:
    """Notes of one model runner.

    Args:
        runner: SGLang's; its sampling is watched.

    Attributes:
        found: Answers that went another way at such a place, as ``(request, token)``.
    """

    def __init__(self, runner: Any) -> None:
        self.found: list[tuple[str, int]] = []
        self._notes: list[tuple[list[str], Any, Any]] = []
        self._near: dict[str, set[int]] = defaultdict(set)
        sample = runner.sample

        def watched(logits_output: Any, forward_batch: Any) -> Any:
            best = logits_output.next_token_logits.float().topk(2, dim=-1).values
            gap = (best[:, 0] - best[:, 1]) / best[
                :, 0
            ].abs()  # of a row that was cut: not a number
            self._notes.append((list(forward_batch.rids), gap, forward_batch.seq_lens.clone()))
            return sample(logits_output, forward_batch)

        runner.sample = watched

    def explain(self, rid: str, prompt_tokens: int, got: list[int], want: list[int]) -> bool:
        """Whether the answers part at such a place, or not at all."""
        if got == want:
            return True
        self._read()
        pairs = enumerate(zip(got, want, strict=False))
        first = next((i for i, (one, other) in pairs if one != other), None)
        if first is None or prompt_tokens + first not in self._near[rid]:
            return False
        self.found.append((rid, first))
        return True

    def _read(self) -> None:
        for rids, gap, lengths in self._notes:
            for rid, apart, length in zip(rids, gap.tolist(), lengths.tolist(), strict=False):
                if apart < NEAR:
                    self._near[rid].add(int(length))
        self._notes.clear()
