"""The host stays close to a device it cannot see; here the device is a counter."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from engine_adapter.sglang.cuda_pass import DeviceClock, RunAhead, eager_when_armed


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


@pytest.mark.parametrize("groups_in_flight", [1, 2, 3])
def test_never_more_groups_in_flight_than_allowed(groups_in_flight: int) -> None:
    device = Device()
    ahead = RunAhead(device.mark, groups_in_flight, device.sleep)
    for _ in range(2):
        ahead.begin()
        device.launch()
        for _ in range(7):
            assert not ahead.at_safepoint(lambda: False)
            device.launch()
        device.finished = device.launched
    assert device.most_in_flight == groups_in_flight


def test_a_stop_that_comes_during_the_wait_ends_it() -> None:
    device = Device()
    ahead = RunAhead(device.mark, 2, lambda seconds: None)  # this device never finishes
    ahead.begin()
    device.launch()
    assert not ahead.at_safepoint(lambda: False)
    device.launch()
    answers = iter([False, False, False, True])
    assert ahead.at_safepoint(lambda: next(answers))


def test_a_device_that_keeps_up_is_never_waited_for() -> None:
    device = Device()
    ahead = RunAhead(device.mark, 2, device.sleep)
    ahead.begin()
    for _ in range(5):
        device.launch()
        device.finished = device.launched
        assert not ahead.at_safepoint(lambda: False)
    assert device.polls == 0


def test_armed_prefills_leave_the_graph() -> None:
    graphs = SimpleNamespace(can_run_graph=lambda batch: batch == "fits")
    armed = False
    eager_when_armed(
        SimpleNamespace(device="cuda", prefill_cuda_graph_runner=graphs), lambda: armed
    )
    assert graphs.can_run_graph("fits")
    assert not graphs.can_run_graph("too long")
    armed = True
    assert not graphs.can_run_graph("fits")


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


def test_on_a_cpu_the_duration_is_fixed_when_the_pass_ends() -> None:
    clock = DeviceClock(None)
    measured = clock.stop(clock.start())
    assert 0.0 <= measured() == measured() < 1.0
