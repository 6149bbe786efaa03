"""Looks between the segments of a graph whose loop is SGLang's; the segments are recorded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine_adapter.sglang.graph_segments import guard_segments


class Segment:
    def __init__(self, name: str, done: list[str]) -> None:
        self.name, self.done = name, done

    def replay(self) -> None:
        self.done.append(self.name)


class Graph:
    """What SGLang's breakable graph is to a replay; its loop is held by a source digest."""

    def __init__(self, num_segments: int) -> None:
        self.done: list[str] = []
        self._segments: list[Any] = [Segment(f"s{i}", self.done) for i in range(num_segments)]
        self._break_fns = [lambda i=i: self.done.append(f"a{i}") for i in range(num_segments - 1)]

    def replay(self) -> None:
        for i, seg in enumerate(self._segments):
            seg.replay()
            if i < len(self._break_fns):
                self._break_fns[i]()


def runner(*graphs: Graph) -> SimpleNamespace:
    backend = SimpleNamespace(_graphs=dict(enumerate(graphs)))
    return SimpleNamespace(prefill_cuda_graph_runner=SimpleNamespace(backend=backend))


class Stopped(Exception):
    pass


@pytest.mark.parametrize("stop_at", [1, 2, 3])
def test_a_stop_ends_the_pass_before_the_layer_and_not_later(stop_at: int) -> None:
    graph = Graph(4)
    looked: list[int] = []

    def look(layer: int) -> None:
        looked.append(layer)
        if layer == stop_at:
            raise Stopped

    assert guard_segments(runner(graph), 3, look) == 1
    with pytest.raises(Stopped):
        graph.replay()
    assert looked == list(range(1, stop_at + 1))
    assert graph.done == [part for i in range(stop_at) for part in (f"s{i}", f"a{i}")]


@pytest.mark.parametrize("num_segments", [3, 5, 9, 17])
def test_each_layer_is_looked_at_once_and_the_pass_is_the_same(num_segments: int) -> None:
    graph, plain = Graph(num_segments), Graph(num_segments)
    looked: list[int] = []
    guard_segments(runner(graph), 4, looked.append)
    graph.replay()
    plain.replay()
    assert graph.done == plain.done
    assert looked == sorted(set(looked))
    assert all(0 < layer <= 4 for layer in looked)
    assert len(looked) == min(4, num_segments - 1)


def test_every_captured_size_is_guarded_and_other_graphs_are_left_alone() -> None:
    whole = Graph(1)
    assert guard_segments(runner(Graph(3), whole, Graph(3)), 2, lambda _: None) == 2
    assert isinstance(whole._segments[0], Segment)
    for without in (SimpleNamespace(), runner(), SimpleNamespace(prefill_cuda_graph_runner=None)):
        assert guard_segments(without, 2, lambda _: None) == 0


def test_what_else_is_asked_of_a_segment_is_its_own() -> None:
    graph = Graph(2)
    guard_segments(runner(graph), 1, lambda _: None)
    assert graph._segments[1].name == "s1"
