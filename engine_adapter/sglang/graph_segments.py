"""Safepoints between the segments of a breakable prefill graph. Not run on CUDA yet.

SGLang captures a prefill on CUDA as one graph per stretch between two attentions and replays the
stretches in a loop on the host, the attentions eagerly between them:

    host   segment 0 | attention 0 | segment 1 | attention 1 | ... | segment n
    look               -             before      -                   before

Module hooks are not called in a replay, so the look is put in front of the segments themselves.
A pass can be stopped there and nothing else: shapes in a graph are fixed, so a step whose rows may
be dropped is launched layer by layer (:func:`.cuda_pass.eager_when_armed`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class GuardedSegment:
    """A graph segment that looks at a safepoint before it is replayed."""

    def __init__(self, segment: Any, layer: int, look: Callable[[int], None]) -> None:
        """Guard ``segment``, the first of the pass that belongs to ``layer``."""
        self._segment = segment
        self._layer = layer
        self._look = look

    def replay(self) -> None:
        """Look, then launch; whatever the look raises ends the pass."""
        self._look(self._layer)
        self._segment.replay()

    def __getattr__(self, name: str) -> Any:
        """Everything else is the segment's own."""
        return getattr(self._segment, name)


def guard_segments(model_runner: Any, num_layers: int, look: Callable[[int], None]) -> int:
    """Put a look in front of each layer's first segment, in all captured prefill graphs.

    Args:
        model_runner: SGLang's, with its graphs captured.
        num_layers: Decoder layers of the model; segments are spread evenly over them.
        look: Called with the layer that is next.

    Returns:
        Graphs guarded: none on a CPU, without graphs, or with graphs of another kind.
    """
    runner = getattr(model_runner, "prefill_cuda_graph_runner", None)
    graphs = getattr(getattr(runner, "backend", None), "_graphs", None)
    if not isinstance(graphs, dict):
        return 0
    breakable = [graph for graph in graphs.values() if len(getattr(graph, "_segments", ())) > 1]
    for graph in breakable:
        graph._segments = _guarded(graph._segments, num_layers, look)
    return len(breakable)


def _guarded(segments: list[Any], num_layers: int, look: Callable[[int], None]) -> list[Any]:
    """One look a layer, however many segments it has; none before the pass has begun."""
    guarded = []
    seen = 0
    for i, segment in enumerate(segments):
        layer = i * num_layers // (len(segments) - 1)
        guarded.append(GuardedSegment(segment, layer, look) if layer > seen else segment)
        seen = layer
    return guarded
