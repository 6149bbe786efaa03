"""Windows of the simulated cells: steady, and long enough for a P99."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from bench.cells import (
    BUSY,
    FOR_RULES,
    LIFETIMES,
    NUM_ONLINE,
    OUTSTANDING,
    Case,
    lifetime_s,
    make_device,
    offline_lengths,
    online_requests,
    steady_load,
)
from engine_adapter.scheduling.policies.registry import create_policy
from engine_adapter.scheduling.targets import Slo
from lab.simulator.replay import Replay
from lab.workload.traces import HEADER

DEVICE = "h200-llama-3.1-8b"
NOWHERE = Path("nowhere")


@pytest.mark.parametrize("load", ["gamma", "on-off", "azure-conv"])
def test_a_window_lasts_for_lifetimes_of_an_offline_request(load: str) -> None:
    case, device = Case(DEVICE, load, 101), make_device(DEVICE)
    online = online_requests(case, device, NOWHERE)
    assert online[-1].arrival_s == pytest.approx(LIFETIMES * lifetime_s(case, device), rel=0.05)
    assert len(online) > NUM_ONLINE
    work_s = sum(
        r.input_tokens * device.prompt_token_s(r.input_tokens)
        + r.output_tokens * device.output_token_s(r.input_tokens + r.output_tokens // 2)
        for r in online
    )
    assert work_s == pytest.approx(BUSY * online[-1].arrival_s)


def test_a_window_holds_the_requests_of_a_p99_if_they_take_longer() -> None:
    case, device = Case(DEVICE, "gamma", 101, lifetimes=0.0), make_device(DEVICE)
    assert len(online_requests(case, device, NOWHERE)) == NUM_ONLINE


def test_a_trace_that_ends_before_its_window_begins_anew(tmp_path: Path) -> None:
    lines = [",".join(HEADER), *(f"{at}.5,{100 + at},50" for at in range(7))]
    (tmp_path / "burstgpt1_day1_compressed_15min.csv").write_text("\n".join(lines) + "\n")
    device = make_device(DEVICE)
    case = Case(DEVICE, "burstgpt", 101, num_online=20, lifetimes=0.0)
    online = online_requests(case, device, tmp_path)
    assert [r.input_tokens for r in online] == [100 + at % 7 for at in range(20)]
    assert all(one.arrival_s <= two.arrival_s for one, two in pairwise(online))


def test_slots_are_full_of_requests_at_every_stage_when_the_window_opens() -> None:
    case, device = Case(DEVICE, "gamma", 101, **FOR_RULES), make_device(DEVICE)
    load = steady_load(case, device, online_requests(case, device, NOWHERE))
    load = replace(load, offline=offline_lengths(case))
    policy = create_policy("conserve_v2", device.model)
    replayed = Replay(device, policy, load, Slo(0.1, 0.05), None)
    replayed.advance(0.0)
    first = [replayed.engine.tracks[f"offline-{number}"] for number in range(OUTSTANDING)]
    assert sum(track.over for track in first) > OUTSTANDING / 2
    now = [track.request for track in replayed.engine.tracks.values() if not track.over]
    assert any(row.output_tokens for row in now)
    assert any(not row.output_tokens for row in now)
