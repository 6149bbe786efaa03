"""Whole runs: the same twice, nothing lost, what options do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import pytest

from engine_adapter.scheduling.derive import default_slo
from engine_adapter.scheduling.policies.registry import create_policy
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.targets import Slo
from lab.policies.registry import NAMES
from lab.simulator.device import EngineSize, SimulatedDevice, find_device
from lab.simulator.replay import Replay, SharedPrefixes, SimulatedLoad, replay
from lab.simulator.times import Noise
from lab.workload.arrivals import poisson_arrivals
from lab.workload.lengths import fixed_lengths
from lab.workload.summary import SystemRun, gaps_s, ttfts_s
from lab.workload.traces import TraceRequest

SIZE = EngineSize(slots=32, chunk_tokens=512, kv_tokens=20_000)


@pytest.fixture(scope="module")
def device() -> SimulatedDevice:
    return find_device("h200-llama-3.1-8b", SIZE)


def load(**changed: object) -> SimulatedLoad:
    online = [TraceRequest(at_s, 400, 20) for at_s in poisson_arrivals(6.0, 4.0, seed=3)]
    made = SimulatedLoad(online, fixed_lengths(700, 30), 40, duration_s=4.0, lead_s=1.0)
    return replace(made, **changed)  # type: ignore[arg-type]


def play(device: SimulatedDevice, policy: str, made: SimulatedLoad, **more: object) -> SystemRun:
    if policy == "online_only":
        made = replace(made, offline=None)
    slo = default_slo(device.model)
    return replay(device, create_policy(policy, device.model), made, slo, **more)  # type: ignore[arg-type]


def told(run: SystemRun) -> list[tuple[str, list[float]]]:
    return [(r.name, r.token_times_s) for r in (*run.result.online, *run.result.offline)]


@pytest.mark.parametrize("policy", NAMES)
def test_the_same_seed_gives_the_same_run_to_the_token(
    device: SimulatedDevice, policy: str
) -> None:
    first, second, other = (
        play(device, policy, load(), noise=Noise(0.1, 0.4, seed)) for seed in (1, 1, 2)
    )
    assert told(first) == told(second) != told(other)
    assert first.counters == second.counters


@pytest.mark.parametrize("policy", NAMES)
def test_every_online_request_is_answered_whole(device: SimulatedDevice, policy: str) -> None:
    run = play(device, policy, load())
    assert run.system == policy.replace("_", "-")
    assert [len(record.token_times_s) for record in run.result.online] == [20] * len(load().online)
    assert all(record.done and not record.error for record in run.result.online)
    # These know no online class: whoever is due for memory comes first.
    longest_s = 30.0 if policy.startswith(("multires", "ecoserve")) else 2.0
    assert all(0.0 < wait_s < longest_s for wait_s in ttfts_s(run))
    if policy != "online_only":
        assert run.result.reading
        assert 0.0 < run.counters["offline_work_s"] < 8.0
        outstanding = [r for r in run.result.offline if not r.done]
        assert len(outstanding) == 40


def test_what_the_engine_counts_is_what_clients_saw(device: SimulatedDevice) -> None:
    """Prompts half computed at an edge of the window make the difference."""
    run = play(device, "non_preemptive", load())
    assert run.result.reading is not None
    seen = run.result.offline_tokens_per_s() * 4.0
    assert run.result.reading == pytest.approx(seen, abs=2 * 2 * 700 + 64)


def test_progress_is_told_to_the_end_of_the_window(device: SimulatedDevice) -> None:
    seconds: list[float] = []
    play(device, "online_only", load(offline=None), progress=seconds.append)
    assert sum(seconds) == pytest.approx(5.0, abs=0.2)
    assert len(seconds) > 20


def test_overhead_lengthens_every_gap(device: SimulatedDevice) -> None:
    slow = replace(device, shape=replace(device.shape, overhead_s=0.010))
    alone = load(offline=None)
    gaps, longer = (min(gaps_s(play(d, "online_only", alone))) for d in (device, slow))
    assert longer == pytest.approx(gaps + 0.010, abs=0.001)


def test_shared_prefixes_bring_first_tokens_forward(device: SimulatedDevice) -> None:
    alone = load(offline=None)
    shared = replace(alone, online_prefixes=SharedPrefixes(300, 2))
    plain, hit = (play(device, "online_only", made) for made in (alone, shared))
    assert sum(ttfts_s(hit)) < 0.8 * sum(ttfts_s(plain))
    assert {record.cached_tokens for record in hit.result.online} == {0, 300}


def test_offline_requests_may_run_out(device: SimulatedDevice) -> None:
    run = play(device, "conserve_v2", load(offline=islice(fixed_lengths(700, 30), 45)))
    assert [record.done for record in run.result.offline] == [True] * 45


def test_each_batch_keeps_its_part_of_the_outstanding_requests(device: SimulatedDevice) -> None:
    made = load(batch_windows_s=(2.0, 9.0))
    policy = create_policy("conserve_v2", device.model)
    replayed = Replay(device, policy, made, default_slo(device.model), None)
    replayed.run(0, lambda _: None)
    requests = [
        track.request for track in replayed.engine.tracks.values() if not track.request.is_online
    ]
    assert {round(request.deadline_at_s - request.arrival_at_s, 6) for request in requests} == {
        2.0,
        9.0,
    }
    open_requests = [
        request for request in replayed.engine.roster.requests.values() if not request.is_online
    ]
    assert sorted(request.batch_id for request in open_requests) == ["0"] * 20 + ["1"] * 20


@pytest.mark.parametrize("offline", [None, fixed_lengths(1500, 60)])
def test_chat_that_fills_the_memory_keeps_what_it_has_begun(
    offline: Iterator[tuple[int, int]] | None,
) -> None:
    """Answers that grow need pages; chat that begins without leaving any loses its own KV."""
    full = find_device("a100-llama-3.1-8b", EngineSize(kv_tokens=12_000))
    online = [TraceRequest(at_s, 1024, 128) for at_s in poisson_arrivals(5.0, 20.0, seed=3)]
    made = SimulatedLoad(online, offline, 32, duration_s=20.0, lead_s=1.0)
    slo = Slo(1.0, 0.2)

    def recomputed(settings: PolicySettings) -> int:
        run = replay(full, create_policy("conserve_v2", full.model, settings), made, slo)
        assert all(len(record.token_times_s) == 128 for record in run.result.online)
        return int(run.counters["recomputed_tokens"])

    without = recomputed(PolicySettings(growth_tokens=0))
    assert recomputed(PolicySettings()) < 0.2 * without
