"""The cells that real SGLang runs on emulated devices, and what is said of them."""

from __future__ import annotations

from itertools import islice
from typing import Any

from bench.ablation import NUM_ONLINE, Case, offline_lengths
from bench.emulated_table import (
    NO_PREEMPTION,
    OURS,
    OUTSTANDING,
    SEED,
    beside_stock,
    emulated_device,
    lead_s,
    table,
)

DEVICE = "h200-llama-3.1-8b"


def test_slots_are_full_before_the_first_chat() -> None:
    device = emulated_device(DEVICE)
    lead = lead_s(Case(DEVICE, "gamma", SEED, NUM_ONLINE), device)
    documents = islice(offline_lengths(Case(DEVICE, "gamma", SEED, NUM_ONLINE)), OUTSTANDING)
    assert lead > sum(tokens for tokens, _ in documents) * device.prompt_token_s(0)
    assert device.shape.total_slots == OUTSTANDING


def figures(ttft: float, tbt: float, tpot: float, offline: float) -> dict[str, Any]:
    return {
        "ttft_ms": {"p99": ttft},
        "tbt_ms": {"p99": tbt},
        "tpot_ms": {"p99": tpot},
        "offline_tokens_per_s": offline,
    }


CELL: dict[str, Any] = {
    "case": [DEVICE, "gamma", SEED],
    "n": 320,
    "duration_s": 100.0,
    "systems": {
        "online-only": figures(100.0, 50.0, 10.0, 0.0),
        OURS: figures(120.0, 55.0, 13.0, 900.0),
        "sglang-priority@2048": figures(240.0, 110.0, 20.0, 1000.0),
        "sglang-priority@1024+mixed": figures(110.0, 60.0, 20.0, 900.0),
        NO_PREEMPTION: figures(500.0, 500.0, 40.0, 1000.0),
    },
    "beside_simulated": {
        OURS: {"ttft_ms p99": {"ratio": 1.2}, "offline_tokens_per_s": {"ratio": 1}}
    },
}


def test_misses_stand_out() -> None:
    line = table([CELL])[2]
    assert "| H200, gamma | 320 | **1.20** · 1.10 · 1.30 · 90 % |" in line
    assert "| 0.50 · 0.50 · **0.90** | **1.09** · 0.92 · 1.00 | 1 of 2 |" in line


def test_what_was_not_run_is_not_compared() -> None:
    systems = {k: v for k, v in CELL["systems"].items() if k != "sglang-priority@2048"}
    cell = {**CELL, "systems": systems}
    assert beside_stock(cell, is_mixed=False) == "not run"
    assert beside_stock(cell, is_mixed=True).endswith("0.92 · 1.00")
