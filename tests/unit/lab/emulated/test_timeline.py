"""When an emulated device is busy: on a clock of the test's own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from engine_adapter.sglang.cuda_pass import RunAhead
from lab.emulated.timeline import NUM_STAGING, POLL_S, STAGING_BYTES, Timeline

MOVER = Path(__file__).parents[4] / "kernels/coserve_kernels/page_shape.py"
LINK_BYTES_PER_S = float(STAGING_BYTES) * 100  # a staging buffer takes 10 ms


class Hands:
    """A clock that only moves when somebody sleeps or works."""

    def __init__(self, host_step_s: float = 0.0, quiet_until_s: float = 0.0) -> None:
        self.now_s = 100.0
        self.cpu_s = 0.0
        self.slept: list[float] = []
        self.oversleep_s = 0.0
        self.timeline = Timeline(
            lambda: self.now_s,
            self.sleep,
            LINK_BYTES_PER_S,
            host_step_s,
            lambda: self.cpu_s,
            lambda: quiet_until_s,
        )
        self.run_ahead = RunAhead(self.timeline.mark, sleep=self.timeline.approach)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds + self.oversleep_s

    def work(self, seconds: float) -> None:
        self.now_s += seconds
        self.cpu_s += seconds

    def run(self, duration_s: float, layers: int = 4) -> None:
        """A pass that nothing stops."""
        self.timeline.begin(duration_s)
        for layer in range(layers):
            self.timeline.launch((layer + 1) / layers)
        self.timeline.finish()

    def run_armed(self, duration_s: float, stop_at_s: float = 1e9, layers: int = 4) -> bool:
        """A pass with a safepoint before each layer but the first; whether it was stopped."""
        self.run_ahead.begin()
        self.timeline.begin(duration_s)
        for layer in range(layers):
            if layer and self.run_ahead.at_safepoint(lambda: self.now_s >= stop_at_s):
                return True
            self.timeline.launch((layer + 1) / layers)
        self.timeline.finish()
        return False


def test_a_pass_takes_its_time_and_is_waited_for_once() -> None:
    hands = Hands()
    hands.run(0.040)
    assert hands.now_s == pytest.approx(100.040)
    assert hands.slept == pytest.approx([0.040])
    assert hands.timeline.last_s == pytest.approx(0.040)


def test_what_the_host_does_between_two_passes_is_hidden() -> None:
    hands = Hands()
    hands.run(0.010)
    hands.work(0.004)
    hands.run(0.010)
    assert hands.now_s == pytest.approx(100.020)
    assert hands.timeline.last_s == pytest.approx(0.010)
    assert hands.timeline.counts.host_cpu_s == pytest.approx(0.004)


def test_a_device_that_was_idle_begins_at_the_launch() -> None:
    hands = Hands()
    hands.run(0.010)
    hands.work(0.030)
    hands.run(0.010)
    assert hands.now_s == pytest.approx(100.050)


def test_a_pass_that_loses_rows_gets_shorter_from_there_on() -> None:
    hands = Hands()
    timeline = hands.timeline
    timeline.begin(0.100)
    timeline.launch(0.25)
    timeline.change(0.25, 0.020)
    timeline.launch(1.0)
    timeline.finish()
    assert hands.now_s == pytest.approx(100.025 + 0.015)
    assert timeline.last_s == pytest.approx(0.040)


def test_late_passes_are_counted() -> None:
    hands = Hands()
    hands.run(0.010)
    hands.oversleep_s = 0.003
    hands.run(0.010, layers=1)
    counts = hands.timeline.counts
    assert (counts.passes, counts.late) == (2, 1)
    assert counts.worst_s == pytest.approx(0.003) == counts.late_s
    assert counts.busy_s == pytest.approx(0.020)
    # The next one begins where this one should have ended: lateness does not add up.
    hands.oversleep_s = 0.0
    hands.run(0.010, layers=1)
    assert hands.now_s == pytest.approx(100.030)


# --- Armed passes.


def test_a_stopped_pass_frees_the_device_after_the_groups_that_were_launched_ahead() -> None:
    """The host stops at once; two groups of the pass are launched and run to their end."""
    hands = Hands()
    assert hands.run_armed(0.040, stop_at_s=100.011)
    # In the second group of ten milliseconds, with the third one not launched.
    assert 100.011 <= hands.now_s <= 100.011 + POLL_S
    assert hands.timeline.free_at_s == pytest.approx(100.030)
    hands.run(0.010)
    assert hands.now_s == pytest.approx(100.040)
    assert hands.timeline.last_s == pytest.approx(0.010)


def test_rows_are_lost_only_where_layers_were_not_launched() -> None:
    hands = Hands()
    timeline = hands.timeline
    timeline.begin(0.040)
    timeline.launch(0.25)
    hands.run_ahead.at_safepoint(lambda: False)
    timeline.launch(0.5)
    assert hands.run_ahead.at_safepoint(lambda: True)
    timeline.change(0.5, 0.020)
    timeline.launch(1.0)
    timeline.finish()
    assert hands.now_s == pytest.approx(100.030)


def test_what_the_host_does_before_an_armed_pass_is_not_hidden() -> None:
    hands = Hands()
    hands.run(0.010)
    hands.work(0.004)
    hands.run_armed(0.010)
    assert hands.now_s == pytest.approx(100.024)
    assert hands.timeline.last_s == pytest.approx(0.010)
    assert hands.timeline.counts.armed_gap_s == pytest.approx(0.004)


def test_behind_an_armed_pass_only_its_last_groups_hide_what_the_host_does() -> None:
    """The host launches the last of four layers when the second one has ended."""
    hands = Hands()
    hands.run_armed(0.040)
    assert hands.now_s == pytest.approx(100.040)
    hands.work(0.015)
    hands.run(0.020)
    assert hands.now_s == pytest.approx(100.060)
    hands.run_armed(0.040)
    hands.work(0.025)
    hands.run(0.020)
    assert hands.now_s == pytest.approx(100.100 + 0.025 + 0.020)


def test_a_clock_that_does_not_show_the_host_charges_it_where_it_is_not_hidden() -> None:
    hands = Hands(host_step_s=0.003)
    hands.run(0.010)
    hands.run(0.010)
    assert hands.now_s == pytest.approx(100.020)
    hands.run_armed(0.040)
    assert hands.now_s == pytest.approx(100.063)
    hands.run(0.010)  # twenty milliseconds ran when the last layer was launched
    assert hands.now_s == pytest.approx(100.073)


def test_an_armed_pass_behind_a_stopped_one_begins_when_device_and_host_are_ready() -> None:
    hands = Hands(host_step_s=0.003)
    assert hands.run_armed(0.004, stop_at_s=100.0035)
    stopped_s, free_s = hands.now_s, hands.timeline.free_at_s
    assert free_s < stopped_s + 0.003
    hands.run_armed(0.010)
    assert hands.now_s == pytest.approx(stopped_s + 0.013)


def test_a_stop_is_looked_for_where_one_can_come() -> None:
    """On a shared clock each look costs everybody a rest; the device is free as soon."""
    free_s, looks = [], []
    for quiet_until_s in (0.0, 100.0135):
        hands = Hands(quiet_until_s=quiet_until_s)
        assert hands.run_armed(0.040, stop_at_s=100.0135)
        free_s.append(hands.timeline.free_at_s)
        looks.append(len(hands.slept))
    assert free_s[0] == pytest.approx(free_s[1])
    assert looks[1] <= 4 < looks[0]


def test_the_gap_before_an_armed_pass_is_told() -> None:
    hands = Hands(host_step_s=0.003)
    hands.run(0.010)
    hands.run(0.010)
    assert hands.timeline.gap_s == 0.0
    hands.work(0.001)
    hands.run_armed(0.040)
    assert hands.timeline.gap_s == pytest.approx(0.004)
    assert hands.timeline.last_s == pytest.approx(0.040), "no part of the pass"


# --- Copies.


def test_copies_to_the_host_run_beside_passes_as_far_as_they_are_staged() -> None:
    hands = Hands()
    hands.timeline.store(NUM_STAGING * STAGING_BYTES)
    hands.run(0.010)
    assert hands.now_s == pytest.approx(100.010)
    assert hands.timeline.counts.copies_s == pytest.approx(0.020)


def test_a_pass_waits_for_copies_that_no_staging_buffer_is_free_for() -> None:
    """Five buffers of ten milliseconds: the last is gathered when the third has left."""
    hands = Hands()
    hands.timeline.store(5 * STAGING_BYTES)
    hands.run(0.010)
    assert hands.now_s == pytest.approx(100.040)
    assert hands.timeline.counts.copies_waited_s == pytest.approx(0.030)
    assert hands.timeline.last_s == pytest.approx(0.010)


def test_a_pass_waits_for_what_comes_back_from_the_host() -> None:
    hands = Hands()
    hands.timeline.load(3 * STAGING_BYTES + STAGING_BYTES // 2)
    hands.run(0.010)
    assert hands.now_s == pytest.approx(100.045)


def test_the_link_carries_one_copy_after_another() -> None:
    hands = Hands()
    hands.timeline.store(STAGING_BYTES)
    hands.timeline.load(STAGING_BYTES)
    hands.run(0.005)
    assert hands.now_s == pytest.approx(100.025)
    hands.run(0.005)
    assert hands.now_s == pytest.approx(100.030)


def test_buffers_are_those_of_the_page_mover() -> None:
    """Which cannot be imported without Triton."""
    values = {
        node.targets[0].id: eval(compile(ast.Expression(node.value), "", "eval"))
        for node in ast.parse(MOVER.read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        if "STAGING" in node.targets[0].id
    }
    assert values["STAGING_BYTES"] == STAGING_BYTES
    assert values["NUM_STAGING"] == NUM_STAGING
