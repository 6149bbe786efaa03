"""A host that stays close to its device, and looks between the segments of a graph."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from engine_adapter.scheduling.derive import GROUPS_IN_FLIGHT, safepoint_groups
from engine_adapter.sglang.cuda_pass import (
    DeviceClock,
    RunAhead,
    captured_prefill_tokens,
    eager_when_armed,
    guard_segments,
)


class Device:
    """Finishes one layer group per poll, but never one that was not launched."""

    def __init__(self) -> None:
        self.launched = 0
        self.finished = 0
        self.most_in_flight = 0
        self.polls = 0

    def launch(self) -> None:
        self.launched += 1
        self.most_in_flight = max(self.most_in_flight, self.launched - self.finished)

    def mark(self) -> Done:
        return Done(self, self.launched)

    def sleep(self, _seconds: float) -> None:
        self.polls += 1
        self.finished = min(self.finished + 1, self.launched)


class Done:
    def __init__(self, device: Device, group: int) -> None:
        self.device, self.group = device, group

    def query(self) -> bool:
        return self.device.finished >= self.group

    def synchronize(self) -> None:
        self.device.finished = max(self.device.finished, self.group)

    def elapsed_time(self, later: Done) -> float:
        return float(later.group - self.group)


@pytest.mark.parametrize("groups_in_flight", [1, 2, 3])
def test_never_more_groups_in_flight_than_allowed(groups_in_flight: int) -> None:
    device = Device()
    ahead = RunAhead(device.mark, groups_in_flight, device.sleep)
    for _ in range(2):
        ahead.begin(groups_in_flight)
        device.launch()
        for _ in range(7):
            assert not ahead.at_safepoint(lambda: False)
            device.launch()
        device.finished = device.launched
    assert device.most_in_flight == groups_in_flight


def test_a_stop_that_comes_during_the_wait_ends_it() -> None:
    device = Device()
    ahead = RunAhead(device.mark, 2, lambda seconds: None)  # this device never finishes
    ahead.begin(2)
    device.launch()
    assert not ahead.at_safepoint(lambda: False)
    device.launch()
    answers = iter([False, False, False, True])
    assert ahead.at_safepoint(lambda: next(answers))


def test_a_device_that_keeps_up_is_never_waited_for() -> None:
    device = Device()
    ahead = RunAhead(device.mark, 2, device.sleep)
    ahead.begin(2)
    for _ in range(5):
        device.launch()
        device.finished = device.launched
        assert not ahead.at_safepoint(lambda: False)
    assert device.polls == 0


# --- A device in virtual time: from the stop word to a device that is free.


class VirtualDevice:
    """Computes layers one after the other; the host's clock moves while it sleeps."""

    def __init__(self, layer_s: float) -> None:
        self.layer_s = layer_s
        self.now_s = self.free_at_s = 0.0

    def launch(self, num_layers: int) -> None:
        self.now_s += 20e-6 * num_layers
        self.free_at_s = max(self.free_at_s, self.now_s) + num_layers * self.layer_s

    def mark(self) -> VirtualMark:
        return VirtualMark(self, self.free_at_s)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class VirtualMark:
    def __init__(self, device: VirtualDevice, at_s: float) -> None:
        self.device, self.at_s = device, at_s

    def query(self) -> bool:
        return self.device.now_s >= self.at_s

    def synchronize(self) -> None:
        self.device.now_s = max(self.device.now_s, self.at_s)

    def elapsed_time(self, later: VirtualMark) -> float:
        return 1000.0 * (later.at_s - self.at_s)


def stopped_pass(layer_s: float, interval_s: float, word_at_s: float) -> tuple[float, float] | None:
    """Seconds from the word to a device that is free, as it was and as it was told."""
    num_layers = 32
    device = VirtualDevice(layer_s)
    ahead = RunAhead(device.mark, sleep=device.sleep, clock=lambda: device.now_s, marks_begin=True)
    every, groups = safepoint_groups(interval_s, num_layers * layer_s, num_layers, GROUPS_IN_FLIGHT)
    ahead.begin(groups)
    for layer in range(0, num_layers, every):
        if layer and ahead.at_safepoint(lambda: device.now_s >= word_at_s):
            told = ahead.freed_at_s()
            free_at_s = max(device.now_s, device.free_at_s)
            device.now_s += 0.05  # the host plans, launches and looks at the result much later
            return free_at_s - word_at_s, told() - word_at_s
        device.launch(min(every, num_layers - layer))
    return None


@pytest.mark.parametrize("layer_ms", [0.3, 1.1, 2.5, 6.9])
def test_a_stop_frees_the_device_within_the_interval(layer_ms: float) -> None:
    """Not the host: what is launched ahead still computes when the host has stopped."""
    layer_s, interval_s = layer_ms / 1e3, 0.004
    rng = random.Random(3)
    stops = [stopped_pass(layer_s, interval_s, rng.uniform(0.0, 24 * layer_s)) for _ in range(300)]
    told = [stop for stop in stops if stop is not None]
    assert len(told) > 250
    slack_s = 0.001  # launches and polls
    assert max(was for was, _ in told) <= max(interval_s, layer_s) + slack_s
    for was_s, told_s in told:
        assert was_s - 1e-9 <= told_s <= was_s + slack_s  # late by a launch, if a mark is seen late


def test_a_device_that_had_not_begun_is_told_when_that_is_learnt() -> None:
    device = VirtualDevice(0.001)
    device.free_at_s = 0.1  # another pass computes
    ahead = RunAhead(device.mark, sleep=device.sleep, clock=lambda: device.now_s, marks_begin=True)
    ahead.begin(2)
    device.launch(2)
    assert ahead.at_safepoint(lambda: True)
    told = ahead.freed_at_s()
    assert told() == pytest.approx(0.102)


def test_armed_prefills_leave_the_graph() -> None:
    graphs = SimpleNamespace(
        can_run_graph=lambda batch: batch == "fits", capture_num_tokens=[16, 4, 8]
    )
    armed = False
    runner = SimpleNamespace(device="cuda", prefill_cuda_graph_runner=graphs)
    assert captured_prefill_tokens(runner) == (4, 8, 16)
    assert eager_when_armed(runner, lambda: armed)
    assert graphs.can_run_graph("fits")
    assert not graphs.can_run_graph("too long")
    armed = True
    assert not graphs.can_run_graph("fits")


def test_without_graphs_no_prefill_leaves_one() -> None:
    for runner in (
        SimpleNamespace(device="cuda", prefill_cuda_graph_runner=None),
        SimpleNamespace(device="cuda"),
        SimpleNamespace(device="cpu", prefill_cuda_graph_runner=SimpleNamespace()),
    ):
        assert not eager_when_armed(runner, lambda: True)
        assert captured_prefill_tokens(runner) == ()


def test_a_device_is_held_before_what_is_timed() -> None:
    """Cells of the profile are launched while it is busy, as behind a pass."""
    done: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            pass

        def record(self, _stream: object) -> None:
            done.append("event")

    cuda = SimpleNamespace(
        Event=Event, current_stream=lambda: None, _sleep=lambda _cycles: done.append("held")
    )
    clock = DeviceClock(None, cuda)
    clock.hold()
    clock.stop(clock.start())
    assert done == ["held", "event", "event"]
    DeviceClock(None).hold()  # where the host computes there is nobody to hold


def test_on_a_device_time_is_taken_between_its_events() -> None:
    recorded: list[object] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing
            self.synchronized = False

        def record(self, stream: object) -> None:
            recorded.append(stream)

        def synchronize(self) -> None:
            self.synchronized = True

        def elapsed_time(self, other: Event) -> float:
            assert other.synchronized
            return 12.5

    clock = DeviceClock("forward", SimpleNamespace(Event=Event))
    assert clock.stop(clock.start())() == 0.0125
    assert recorded == ["forward", "forward"]


def test_a_gap_lies_between_the_passes_of_a_device() -> None:
    now_ms = 0.0

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            self.at_ms = -1.0

        def record(self, _stream: object) -> None:
            self.at_ms = now_ms

        def synchronize(self) -> None:
            pass

        def elapsed_time(self, later: Event) -> float:
            return later.at_ms - self.at_ms

    clock = DeviceClock("forward", SimpleNamespace(Event=Event))
    first = clock.start()
    assert clock.gap()() == 0.0, "nothing ran before"
    now_ms = 8.0
    clock.stop(first)
    now_ms = 11.0
    second = clock.start()
    gap = clock.gap()
    now_ms = 20.0
    assert clock.stop(second)() == pytest.approx(0.009)
    clock.start()
    assert gap() == pytest.approx(0.003)
    assert DeviceClock(None).gap()() == 0.0


def test_on_a_cpu_the_duration_is_fixed_when_the_pass_ends() -> None:
    clock = DeviceClock(None)
    measured = clock.stop(clock.start())
    assert 0.0 <= measured() == measured() < 1.0


# --- Looks between the segments of a graph whose loop is SGLang's; the segments are recorded.


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
