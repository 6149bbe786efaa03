"""The clock that a device and its clients share: who may move it, and when."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.emulated.clock import (
    DUE,
    ENVIRONMENT,
    FOREVER_NS,
    NS,
    HostClock,
    VirtualClock,
    device_clock,
)


class Device(threading.Thread):
    """Waits on a handle of its own, as an engine would."""

    def __init__(self, folder: Path, work: Callable[[VirtualClock], None]) -> None:
        super().__init__(daemon=True)
        self.clock = VirtualClock(folder)
        self._work = work
        self.start()

    def run(self) -> None:
        self._work(self.clock)

    def until_it_waits(self) -> None:
        while not self.clock._fields[DUE]:
            time.sleep(0.001)


@pytest.mark.timeout(20)
def test_it_goes_where_the_device_waits_for_and_no_further_than_a_client(tmp_path: Path) -> None:
    clock = VirtualClock.create(tmp_path)
    clock.begin()
    began_ns = clock.now_ns
    device = Device(tmp_path, lambda own: own.wait(10.0))
    device.until_it_waits()
    assert clock.turn(began_ns + int(4 * NS))  # a client's own instant comes first
    assert clock.now_ns == began_ns + int(4 * NS) == device.clock.now_ns
    assert not clock.turn(began_ns + int(30 * NS))
    device.join()
    assert clock.now_ns == began_ns + int(10 * NS)


@pytest.mark.timeout(20)
def test_within_a_pass_the_device_asks_once_and_at_a_clients_instant_again(tmp_path: Path) -> None:
    def work(own: VirtualClock) -> None:
        own.launched()
        for _layer in range(8):
            own.wait(1.0)

    clock = VirtualClock.create(tmp_path)
    clock.begin()
    began_ns = clock.now_ns
    device = Device(tmp_path, work)
    device.until_it_waits()
    assert not clock.turn(began_ns + int(5.5 * NS))
    device.until_it_waits()
    assert clock.now_ns == began_ns + int(5 * NS)  # the sixth layer would end after it
    assert clock.turn(began_ns + int(5.5 * NS))
    assert not clock.turn(began_ns + int(100 * NS))
    device.join()
    assert clock.now_ns == began_ns + int(8 * NS)


@pytest.mark.timeout(20)
def test_what_is_known_of_the_clients_is_known_once_the_device_has_asked(tmp_path: Path) -> None:
    found: list[float] = []

    def work(own: VirtualClock) -> None:
        own.launched()
        found.append(own.quiet_until_s())
        own.wait(1.0)
        found.append(own.quiet_until_s())
        own.launched()
        found.append(own.quiet_until_s())

    clock = VirtualClock.create(tmp_path)
    assert clock.quiet_until_s() == 0.0
    clock.begin()
    began_ns = clock.now_ns
    device = Device(tmp_path, work)
    device.until_it_waits()
    assert not clock.turn(began_ns + int(5 * NS))
    device.join()
    assert found == [0.0, pytest.approx(began_ns / NS + 5), 0.0]


@pytest.mark.timeout(20)
def test_an_instant_between_two_nanoseconds_is_reached(tmp_path: Path) -> None:
    clock = VirtualClock.create(tmp_path)
    clock.begin()
    instant_s = (clock.now_ns + 1_000_000.3) / NS

    def work(own: VirtualClock) -> None:
        while (left_s := instant_s - own.now_s()) > 0.0:
            own.wait(left_s)

    device = Device(tmp_path, work)
    for _ in range(2):
        while device.is_alive() and not clock._fields[DUE]:
            time.sleep(0.001)
        clock.turn(FOREVER_NS)
    device.join(5.0)
    assert not device.is_alive()


def test_where_nobody_waits_it_stands(tmp_path: Path) -> None:
    clock = VirtualClock.create(tmp_path)
    clock.begin()
    before_ns = clock.now_ns
    assert clock.turn(FOREVER_NS)
    assert clock.now_ns == before_ns


@pytest.mark.timeout(20)
def test_a_device_that_waits_when_the_turning_ends_waits_on(tmp_path: Path) -> None:
    clock = VirtualClock.create(tmp_path)
    clock.begin()
    device = Device(tmp_path, lambda own: own.wait(0.02))
    device.until_it_waits()
    before_ns = clock.now_ns
    clock.end()
    device.join()
    assert clock.now_ns >= before_ns + int(0.02 * NS)


def test_an_engine_takes_the_clock_it_is_told_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(device_clock(), HostClock)
    monkeypatch.setattr(time, "monotonic", time.monotonic)  # and back afterwards
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    shared = VirtualClock.create(tmp_path)
    shared.begin()
    clock = device_clock()
    assert shared.device == os.getpid()
    assert time.monotonic() == clock.now_s() == shared.now_s()
