"""From the records of all repeats to the figures of one system."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.workload.harness import RunResult
from lab.workload.metrics import paired_excess
from lab.workload.records import RequestRecord
from service.percentiles import Distribution, attained, percentile

MS = 1000.0
MOST_DRAWS = 1_000_000
"""Draws of the bootstrap: intervals of ten thousand pairs need no two thousand resamples."""


@dataclass(slots=True)
class SystemRun:
    """One repeat of one system."""

    system: str
    repeat: int
    result: RunResult
    counters: dict[str, Any] = field(default_factory=dict)
    started_in_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Targets:
    """What attainment is measured against, in seconds."""

    ttft_s: float
    tbt_s: float


def waited_s(record: RequestRecord, end_s: float) -> float:
    """TTFT, or for a request that never got a token the time its client waited."""
    if record.ttft_s is not None:
        return record.ttft_s
    until_s = end_s if record.given_up_s is None else record.given_up_s
    return max(0.0, until_s - record.scheduled_s)


def ttfts_s(run: SystemRun) -> list[float]:
    """TTFT of every online request of a run, unanswered ones with the time they waited."""
    end_s = run.result.duration_s
    return [waited_s(record, end_s) for record in run.result.online]


def _of_targets(
    runs: Sequence[SystemRun], targets: Mapping[int, Targets]
) -> tuple[list[float], list[float]]:
    """Every TTFT and every TBT as a multiple of its repeat's target.

    An answer that never began has missed every target.
    """
    ttft, tbt = [], []
    for run in runs:
        target = targets[run.repeat]
        ttft += [
            math.inf if record.ttft_s is None else record.ttft_s / target.ttft_s
            for record in run.result.online
        ]
        tbt += [gap_s / target.tbt_s for gap_s in gaps_s(run)]
    return ttft, tbt


def gaps_s(run: SystemRun) -> list[float]:
    """Every gap between two online tokens of a run."""
    return [gap for record in run.result.online for gap in record.gaps_s]


def tpots_s(run: SystemRun) -> list[float]:
    """Mean gap of every online answer of two tokens or more: its pace."""
    return [
        (record.token_times_s[-1] - record.token_times_s[0]) / (len(record.token_times_s) - 1)
        for record in run.result.online
        if len(record.token_times_s) > 1
    ]


def offline_rate(run: SystemRun) -> float:
    """First-time-computed prompt tokens and delivered output tokens per second of the window.

    Our runtime counts exactly this. Of stock SGLang's prompt tokens the online ones are taken off,
    and the offline output tokens are added: so a prompt half computed at the edge of the window
    counts by half. Where requests lost their KV, the engine's count has prompts in it that are
    computed again, and a client learns of a loss long after it; there its own count is taken.
    """
    result = run.result
    if not result.offline:
        return 0.0
    if result.reading is not None and run.counters:
        return result.reading / result.duration_s
    if result.reading is None or _retractions(run):
        return result.offline_tokens_per_s()
    end_s = result.duration_s
    outputs = sum(0.0 <= at_s < end_s for r in result.offline for at_s in r.token_times_s)
    return max(0.0, result.reading - _first_prompts(result.online, end_s) + outputs) / end_s


def _first_prompts(records: Sequence[RequestRecord], end_s: float) -> int:
    """Prompt tokens, without prefix hits, of requests whose first token came in the window."""
    return sum(
        record.input_tokens - record.cached_tokens
        for record in records
        if record.token_times_s and 0.0 <= record.token_times_s[0] < end_s
    )


def _retractions(run: SystemRun) -> int:
    return sum(record.retractions for record in [*run.result.offline, *run.result.online])


def measured_targets(reference: Sequence[SystemRun], share: float = 0.9) -> Targets:
    """The reference's own percentile of TTFT and TBT; with few requests P99 is the largest.

    Raises:
        ValueError: If the reference produced no tokens.
    """
    ttft = [value for run in reference for value in ttfts_s(run)]
    tbt = [value for run in reference for value in gaps_s(run)]
    if not ttft or not tbt:
        raise ValueError("the reference run produced too few tokens to derive targets from")
    return Targets(percentile(ttft, share), percentile(tbt, share))


def summarise(
    runs: Sequence[SystemRun],
    reference: Sequence[SystemRun],
    targets: Mapping[int, Targets],
    scales: Sequence[float],
) -> dict[str, Any]:
    """The figures of one system, pooled over its repeats, every repeat kept beside them.

    Args:
        runs: Its repeats.
        reference: Those of online-only; none where it was not run.
        targets: By repeat.
        scales: Multiples of the targets for which attainment is given.
    """
    ttft = [value for run in runs for value in ttfts_s(run)]
    tbt = [value for run in runs for value in gaps_s(run)]
    ttft_shares, tbt_shares = _of_targets(runs, targets)
    pairs = _pairs(runs, reference)
    excess = paired_excess(pairs, resamples=max(100, min(2000, MOST_DRAWS // max(1, len(pairs)))))
    return {
        "n": len(ttft),
        "ttft_ms": _in_ms(Distribution.of(ttft)),
        "tbt_ms": _in_ms(Distribution.of(tbt)),
        "tpot_ms": _in_ms(Distribution.of([value for run in runs for value in tpots_s(run)])),
        "excess_ttft_ms": None
        if excess is None
        else {
            "n": excess.n,
            "p50": excess.p50 * MS,
            "p90": excess.p90 * MS,
            "ci95": [excess.ci95[0] * MS, excess.ci95[1] * MS],
            "p50_ci95": [excess.p50_ci95[0] * MS, excess.p50_ci95[1] * MS],
        },
        "attainment": {
            str(scale): {
                "ttft": attained(ttft_shares, scale),
                "tbt": attained(tbt_shares, scale),
            }
            for scale in scales
        },
        "offline_tokens_per_s": _mean([offline_rate(run) for run in runs]),
        "offline_work_s_per_s": _mean(
            [run.counters.get("offline_work_s", 0.0) / run.result.duration_s for run in runs]
        ),
        "offline_answered_tokens_per_s": _mean([run.result.offline_tokens_per_s() for run in runs]),
        "recomputed_tokens": sum(_recomputed(run) for run in runs),
        "restored_tokens": sum(int(run.counters.get("restored_tokens", 0)) for run in runs),
        "cached_tokens": sum(r.cached_tokens for run in runs for r in run.result.offline),
        "preemptions": sum(_preemptions(run) for run in runs),
        "unfinished": sum(not record.done for run in runs for record in run.result.online),
        "errors": _errors(runs),
        "runtime": [_runtime(run.counters) for run in runs if run.counters],
        "repeats": [_repeat(run) for run in runs],
    }


def short_figures(run: SystemRun) -> dict[str, float]:
    """What is kept of a run that only helps to choose a setting."""
    gaps = gaps_s(run)
    return {
        "n": len(run.result.online),
        "ttft_p90_ms": percentile(ttfts_s(run), 0.9) * MS,
        "tbt_p90_ms": percentile(gaps, 0.9) * MS if gaps else math.inf,
        "offline_tokens_per_s": offline_rate(run),
        "preemptions": _preemptions(run),
    }


def _pairs(runs: Sequence[SystemRun], reference: Sequence[SystemRun]) -> list[tuple[float, float]]:
    """TTFTs of the same request of the same repeat; a missing repeat pairs with the first.

    Without a reference, where targets were given and online-only was not run, there are none.
    """
    if not reference:
        return []
    by_repeat = {run.repeat: run for run in reference}
    pairs = []
    for run in runs:
        other = by_repeat.get(run.repeat, reference[0])
        waits = {r.name: waited_s(r, other.result.duration_s) for r in other.result.online}
        pairs += [
            (waited_s(record, run.result.duration_s), waits[record.name])
            for record in run.result.online
            if record.name in waits
        ]
    return pairs


def _recomputed(run: SystemRun) -> int:
    """The runtime counts its own. Stock SGLang's are the prompt tokens of the window that were not
    some request's first.
    """
    if "recomputed_tokens" in run.counters:
        return int(run.counters["recomputed_tokens"])
    result = run.result
    if result.reading is None or not _retractions(run):
        return 0
    first = _first_prompts([*result.online, *result.offline], result.duration_s)
    return max(0, result.reading - first)


def _preemptions(run: SystemRun) -> int:
    counters = run.counters
    if counters:
        return int(sum(counters.get(name, 0) for name in ("aborts", "drops", "retracts")))
    return _retractions(run)


def _runtime(counters: dict[str, Any]) -> dict[str, Any]:
    """What the runtime says about itself: shares of step time, model errors, stop delays."""
    cpu_s = counters.get("step_cpu_s") or 0.0
    copies_s = counters.get("checkpoint_cpu_s", 0.0) + counters.get("restore_cpu_s", 0.0)
    steps = counters.get("steps") or 0
    stops = int(counters.get("aborts", 0) + counters.get("drops", 0))  # of this run, not its lead
    delays = sorted((counters.get("flag_to_stop_s") or [])[-stops:] if stops else [])
    return {
        "steps": steps,
        "plan_cpu_us_per_step": counters.get("plan_cpu_s", 0.0) / steps * 1e6 if steps else None,
        "safepoint_cpu_share": counters.get("safepoint_cpu_s", 0.0) / cpu_s if cpu_s else None,
        "checkpoint_cpu_share": copies_s / cpu_s if cpu_s else None,
        "model_errors": counters.get("step_times", {}).get("errors"),
        "stops": len(delays),
        "flag_to_stop_ms_p50": percentile(delays, 0.5) * MS if delays else None,
        "flag_to_stop_ms_max": delays[-1] * MS if delays else None,
        "parks": counters.get("parks"),
        "rejected_plans": counters.get("rejected_plans"),
    }


def _errors(runs: Sequence[SystemRun]) -> dict[str, int]:
    found: dict[str, int] = {}
    for run in runs:
        for record in [*run.result.online, *run.result.offline]:
            if record.error:
                found[record.error] = found.get(record.error, 0) + 1
    return found


def _repeat(run: SystemRun) -> dict[str, Any]:
    return {
        "repeat": run.repeat,
        "n": len(run.result.online),
        "ttft_ms": _in_ms(Distribution.of(ttfts_s(run))),
        "tbt_ms": _in_ms(Distribution.of(gaps_s(run))),
        "offline_tokens_per_s": offline_rate(run),
        "offline_rows_done": sum(record.done for record in run.result.offline),
        "engine_started_in_s": run.started_in_s,
        "counters": run.counters,
    }


def _in_ms(found: Distribution | None) -> dict[str, float | None] | None:
    if found is None:
        return None
    return {
        "p50": found.p50 * MS,
        "p90": found.p90 * MS,
        "p99": None if found.p99 is None else found.p99 * MS,
        "max": found.max * MS,
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
