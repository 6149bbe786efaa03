"""The cells that real SGLang runs on emulated devices, and what is said of them."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

from bench.against_stock import BEST, MIXED, tables
from bench.cells import OUTSTANDING, Case, Cell, make_device, offline_lengths
from bench.emulated_table import (
    EARLY,
    JUST_IN_TIME,
    NO_PREEMPTION,
    OURS,
    SEED,
    calibrated,
    choices_of,
    comparable,
    completed,
    early_lines,
    in_ratios,
    lacking,
    lead_s,
    level_lines,
    run_pieces,
    simulated_choice,
    systems_of,
)

DEVICE = "h200-llama-3.1-8b"
CASE = Case(DEVICE, "gamma", SEED)


def test_slots_are_full_before_the_first_chat() -> None:
    device = make_device(DEVICE)
    lead = lead_s(CASE, device)
    documents = islice(offline_lengths(CASE), OUTSTANDING)
    assert lead > sum(tokens for tokens, _ in documents) * device.prompt_token_s(0)
    assert device.shape.total_slots == OUTSTANDING


def figures(ttft: float, tbt: float, tpot: float, offline: float) -> dict[str, Any]:
    return {
        "ttft_ms": {"p99": ttft},
        "tbt_ms": {"p90": tbt / 2, "p99": tbt},
        "tpot_ms": {"p99": tpot},
        "offline_tokens_per_s": offline,
        "attainment": {"1.0": {"ttft": 0.9, "tbt": 0.99}, "1.25": {"ttft": 1.0, "tbt": 1.0}},
    }


CELL: dict[str, Any] = {
    "case": [DEVICE, "gamma", SEED],
    "chosen": {BEST: "sglang_priority@2048", MIXED: "sglang_priority@1024+mixed"},
    "systems": {
        "online-only": figures(100.0, 50.0, 10.0, 0.0),
        OURS: figures(120.0, 55.0, 13.0, 900.0),
        "sglang-priority@2048": figures(240.0, 110.0, 20.0, 1000.0),
        "sglang-priority@1024+mixed": figures(110.0, 60.0, 20.0, 900.0),
        NO_PREEMPTION: figures(500.0, 500.0, 40.0, 1000.0),
    },
    "beside_simulated": {
        OURS: {"ttft_ms p99": {"ratio": 1.2}, "offline_tokens_per_s": {"ratio": 1}},
        "sglang-priority@1024+mixed": {"ttft_ms p99": {"ratio": 1.1}},
    },
}


def test_a_cell_is_shown_as_the_simulated_ones_are_and_misses_stand_out() -> None:
    lines = tables([in_ratios(CELL)], choices_of([CELL]), [DEVICE, "h100-llama-3.1-8b"])
    assert "| gamma | **1.20** · 1.10 · 1.30 · 90 % | – |" in lines
    assert "| gamma | 0.50 · 0.50 · **0.90** | – |" in lines
    assert "| gamma | **1.09** · 0.92 · 1.00 | – |" in lines
    assert lines.count("0 of 1 win all three") == 2


def test_a_cell_is_set_beside_the_others_once_it_has_what_they_are_compared_with() -> None:
    begun = {**CELL, "systems": {"online-only": CELL["systems"]["online-only"]}}
    assert comparable([begun, CELL]) == [in_ratios(CELL)]


def test_early_first_tokens_are_shown_where_they_were_run() -> None:
    others = {
        JUST_IN_TIME: figures(130.0, 50.0, 12.0, 990.0),
        EARLY: figures(105.0, 50.0, 12.0, 850.0),
    }
    lines = early_lines([CELL, {**CELL, "systems": CELL["systems"] | others}])
    assert lines[2:] == [
        "| H200, gamma | 1.30 · 99 % · 90.0 % | 1.20 · 90 % · 90.0 % | 1.05 · 85 % · 90.0 % |"
    ]


def test_the_simulators_figures_are_counted_system_by_system() -> None:
    assert calibrated([CELL, CELL]) == [f"{OURS}: 2 of 4", "sglang-priority+mixed: 2 of 2"]


def test_only_systems_that_a_cell_lacks_are_run_and_what_it_had_stays() -> None:
    wanted = ["online-only", OURS, JUST_IN_TIME, "best"]
    assert lacking(CELL, wanted) == [JUST_IN_TIME]  # stock's best is there, by its setting
    again = {"online-only": figures(1.0, 1.0, 1.0, 0.0), JUST_IN_TIME: figures(2.0, 2.0, 2.0, 2.0)}
    cell = completed(CELL, {"systems": again, "beside_simulated": {JUST_IN_TIME: {}}})
    assert cell["systems"]["online-only"] == CELL["systems"]["online-only"]
    assert lacking(cell, wanted) == []
    assert cell["beside_simulated"].keys() == {JUST_IN_TIME, *CELL["beside_simulated"]}


def test_systems_of_a_cell_run_one_by_one_and_a_run_that_is_ended_goes_on() -> None:
    asked: list[tuple[str, tuple[str, ...]]] = []

    def run(_case: Case, settings: dict[str, str], names: Any, targets: Any) -> Cell:
        asked.extend((name, tuple(targets)) for name in names)
        return {
            "case": [DEVICE, "gamma", SEED],
            "chosen": settings,
            "targets_ms": {"ttft": 90.0, "tbt": 20.0},
            "systems": {name: figures(1.0, 1.0, 1.0, 1.0) for name in names},
        }

    wanted = ["online-only", NO_PREEMPTION, f"{OURS}:max"]
    cells: list[Cell] = []
    pieces = run_pieces(cells, CASE, wanted, ["--tbt-ms=20"], math.inf, run)
    next(pieces)
    next(pieces)  # ended here
    assert set(cells[0]["systems"]) == set(wanted[:2])
    assert list(run_pieces(cells, CASE, wanted, [], 0.0, run)) == [], "no time is left"
    assert len(list(run_pieces(cells, CASE, wanted, [], math.inf, run))) == 1
    own = ("--ttft-ms=90.0", "--tbt-ms=20.0")
    assert asked == [(wanted[0], ("--tbt-ms=20",)), (wanted[1], own), (wanted[2], own)]
    assert len(cells) == 1


def test_levels_are_shown_where_they_were_run() -> None:
    level = {f"{OURS}:balanced": figures(110.0, 52.0, 12.0, 800.0)}
    lines = level_lines([CELL, {**CELL, "systems": CELL["systems"] | level}])
    assert lines == [
        "| | balanced |",
        "|---|---|",
        "| H200, gamma | 1.10 · 1.04 · 1.20 · 80 % |",
    ]


def test_a_new_cell_has_the_settings_that_the_simulator_chose() -> None:
    settings = simulated_choice(DEVICE, "gamma")
    assert settings[BEST].startswith("sglang_priority@")
    assert settings[MIXED].endswith("+mixed")
    best = settings[BEST].replace("_", "-")
    assert systems_of(settings, ["online-only", "best", OURS]) == ["online-only", best, OURS]
