"""ON/OFF loads: how soon an OFF phase is harvested in full (ConServe v1, section 6.3.1).

arrivals   ||||||||||                   ||||||||||
phase      <-- on --><------ off ------><-- on -->
answering  ~~~~~~~~~~~~|                |~~~~~~~~~~~~
                       |10 steps|-rest--|    harvest begins when the last answer ends
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from lab.workload.summary import SystemRun

NUM_FIRST_STEPS = 10


def off_phases(runs: Sequence[SystemRun], lengths_s: Sequence[float]) -> dict[str, float] | None:
    """Offline tokens per second in OFF phases, pooled over phases and repeats.

    Args:
        runs: One system's, with samples of its counters.
        lengths_s: Lengths of the phases, on first.

    Returns:
        The rate of the first ten steps after the last online token, of the rest of the phase, and
        their ratio; None where no phase was long enough or no counters were read.
    """
    first_tokens = rest_tokens = 0
    first_s = rest_s = 0.0
    found = 0
    for run in runs:
        for begin_s, end_s in _quiet_spans(run, lengths_s):
            inside = [sample for sample in run.result.samples if begin_s <= sample[0] <= end_s]
            # The sample in which the tenth step is done closes the first part.
            tenth = next(
                (
                    s
                    for s in inside
                    if s[1] >= inside[0][1] + NUM_FIRST_STEPS and s is not inside[-1]
                ),
                None,
            )
            if tenth is None:
                continue
            found += 1
            first_tokens += tenth[2] - inside[0][2]
            first_s += tenth[0] - inside[0][0]
            rest_tokens += inside[-1][2] - tenth[2]
            rest_s += inside[-1][0] - tenth[0]
    if not found or not rest_tokens:
        return None
    first, rest = first_tokens / first_s, rest_tokens / rest_s
    return {
        "phases": found,
        "first_10_steps_tokens_per_s": first,
        "rest_tokens_per_s": rest,
        "ratio": first / rest,
    }


def _quiet_spans(run: SystemRun, lengths_s: Sequence[float]) -> list[tuple[float, float]]:
    """From the last online token to the end, of each OFF phase inside the window."""
    edges = [0.0, *accumulate(lengths_s)]
    spans = []
    for index in range(1, len(lengths_s), 2):
        start_s, end_s = edges[index], min(edges[index + 1], run.result.duration_s)
        earlier = [
            r.token_times_s[-1]
            for r in run.result.online
            if r.token_times_s and r.scheduled_s < end_s
        ]
        spans.append((max([start_s, *earlier]), end_s))
    return [(begin_s, end_s) for begin_s, end_s in spans if begin_s < end_s]
