from __future__ import annotations

from batch.run import window
from batch.run.window import Closed, EngineSignals, Trial


def test_an_idle_engine_gets_more() -> None:
    assert window.adjust(64, EngineSignals(0, 64), 256) == 96


def test_a_filled_queue_is_left_alone() -> None:
    assert window.adjust(64, EngineSignals(20, 44), 256) == 64


def test_a_long_queue_gets_less() -> None:
    assert window.adjust(128, EngineSignals(100, 28), 256) == 96


def test_the_queue_is_seconds_of_work() -> None:
    """Behind 40 rows at work wait ten seconds' worth, whatever the window was."""
    for before in (45, 200):
        assert window.adjust(before, EngineSignals(30, 40, 40, rows_per_s=2.0), 256) == 60
        assert window.adjust(before, EngineSignals(30, 40, 40, rows_per_s=0.1), 256) == 44
    assert window.adjust(64, EngineSignals(200, 40, 40, rows_per_s=1000.0), 256) == 256


def test_a_queue_that_runs_dry_is_filled_whatever_the_pace() -> None:
    """The engine was busy with chat, and is not any more: the pace of before is too low."""
    sizes = [10]
    while sizes[-1] < 256:
        sizes.append(window.adjust(sizes[-1], EngineSignals(0, 6, 6, rows_per_s=0.2), 256))
    assert sizes[:4] == [10, 15, 22, 33]
    assert len(sizes) < 14


def test_a_refusal_leaves_what_was_accepted() -> None:
    assert window.after_refusal(128, 40) == 40
    assert window.after_refusal(30, 40) == 30
    assert window.after_refusal(128, 0) == 1


def test_after_a_refusal_it_grows_by_small_steps() -> None:
    assert window.adjust(40, EngineSignals(0, 40, wary=True), 256) == 41
    assert window.adjust(128, EngineSignals(0, 128, wary=True), 256) == 132
    assert window.adjust(128, EngineSignals(0, 128, may_grow=False, wary=True), 256) == 128
    assert window.adjust(1, EngineSignals(0, 1, may_grow=False), 256) == 1


def test_the_window_has_both_bounds() -> None:
    assert window.adjust(256, EngineSignals(0, 0), 256) == 256
    assert window.adjust(8, EngineSignals(500, 0), 256) == window.MIN_WINDOW
    assert window.adjust(2, EngineSignals(500, 0), 2) == 2
    assert window.adjust(1, EngineSignals(500, 0, wary=True), 256) == 1


def test_the_first_window_follows_what_the_engine_can_run() -> None:
    assert window.start(256, 0) == window.START
    assert window.start(256, 100) == 150
    assert window.start(256, 4096) == 256
    assert window.start(16, 4096) == 16


def test_refusals_that_come_together_make_one_trial() -> None:
    trial = Trial()
    trial.note_refused(10.0)
    trial.note_refused(10.5)
    assert (trial.lasts_s, trial.until_s) == (2.0, 12.5)


def test_each_growth_that_is_refused_is_tried_out_longer_up_to_a_minute() -> None:
    trial, lasted = Trial(), []
    for now_s in range(0, 1000, 100):
        trial.note_refused(float(now_s))
        lasted.append(trial.lasts_s)
        trial.runs = True
    assert lasted == [2, 4, 8, 16, 32, 60, 60, 60, 60, 60]


def test_growth_without_a_refusal_needs_no_trial_in_the_end() -> None:
    trial, now_s, lasted = Trial(), 0.0, []
    trial.note_refused(now_s)
    while trial.lasts_s:
        lasted.append(trial.lasts_s)
        now_s = trial.until_s
        trial.note_grown(now_s)
    assert len(lasted) == 3
    assert lasted == sorted(lasted, reverse=True)


def test_an_engine_that_accepts_nothing_is_asked_less_and_less() -> None:
    closed, pauses = Closed(), []
    now_s = 0.0
    for _ in range(7):
        closed.note_refused(now_s)
        closed.note_refused(now_s)  # sent before the first one was refused
        pauses.append(closed.until_s - now_s)
        now_s = closed.until_s
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    closed.note_answered()
    closed.note_refused(now_s)
    assert closed.until_s - now_s == 0.25
