"""Graphs of steps with prompt tokens, as SGLang captures them.

A graph has one size. A step computes as many tokens as the smallest graph that holds it; one that
is larger than all graphs, or would be padded to more than :data:`MOST_PADDING` times its tokens, is
launched layer by layer (``PrefillCudaGraphRunner.can_run_graph``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

MOST_PADDING = 2


def graph_tokens(num_tokens: int, token_steps: tuple[int, ...]) -> int:
    """Tokens of the graph that a step is replayed from, ``token_steps`` ascending; 0 if of none."""
    place = bisect_left(token_steps, num_tokens)
    if place == len(token_steps) or token_steps[place] > MOST_PADDING * num_tokens:
        return 0
    return token_steps[place]


def size_below(num_tokens: int, token_steps: tuple[int, ...]) -> int:
    """Tokens of the largest graph that so many tokens fill; 0 if there is none."""
    place = bisect_right(token_steps, num_tokens)
    return token_steps[place - 1] if place else 0
