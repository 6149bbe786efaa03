"""Policies that only an experiment has do what their experiment says."""

from __future__ import annotations

from dataclasses import replace

from bench.reproduce import conserve
from bench.reproduce.world import LOOSE, measure, play

FULL = replace(conserve.V1, duration_s=8.0, lead_s=6.0, outstanding=24, chunk_tokens=20_000)


def test_an_arrival_throws_documents_away() -> None:
    setup = replace(conserve.GAMMA, duration_s=4.0, lead_s=2.0, outstanding=24)
    lost = {
        name: measure(play(setup, name, LOOSE, 1))["retracts"]
        for name in ("sarathi_p", "discarding:share=0.01", "discarding:share=0.5")
    }
    assert lost["sarathi_p"] == 0
    assert 0 < lost["discarding:share=0.01"] < lost["discarding:share=0.5"]


def test_with_priority_chat_begins_before_documents_that_came_first() -> None:
    wait_s = {
        name: measure(play(FULL, name, LOOSE, 1))["ttft_mean"] for name in ("vllm", "vllm_priority")
    }
    assert wait_s["vllm_priority"] < wait_s["vllm"] / 2.0


def test_without_memory_kept_free_more_give_way() -> None:
    tight = replace(FULL, kv_tokens=21_500)
    lost = [
        measure(play(tight, f"vllm_priority:kept={kept}", LOOSE, 1))["retracts"]
        for kept in (0.0, 0.2)
    ]
    assert lost[0] > lost[1]
