"""The most any schedule could harvest inside the targets, by the measured latency model.

While online requests are there, a step has to end within the TBT target and one of its rows is
theirs; the rest of the time offline steps are bounded by slots and chunk size alone. Prompt and
output tokens have to come in the proportion of the offline requests, whichever of the two kinds of
time they are computed in. That is a linear programme over kinds of step; its dual has one price,
found by halving:

    min over mu of  sum over both kinds of time of  share * max over steps of
        (prompt (1 - mu) + output (1 + ratio mu)) / step time

Online prompts count as time without offline work. Co-serving can only lengthen the time in which
online requests are there, so the bound, which takes it from the run without offline work, holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine_adapter.scheduling.latency import LatencyModel, StepLoad
from lab.workload.summary import SystemRun, Targets

CHUNKS = (0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096)
ROUNDS = 60


@dataclass(frozen=True, slots=True)
class OfflineShape:
    """What offline requests look like and how many may run.

    Attributes:
        input_tokens: Prompt of a row.
        output_tokens: Answer of a row.
        slots: Rows that may decode together.
        max_chunk_tokens: Prompt tokens one step takes.
    """

    input_tokens: int
    output_tokens: int
    slots: int
    max_chunk_tokens: int


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The bound and what it is made of; tokens per second.

    Attributes:
        tokens_per_s: The bound.
        online_share: Share of the time in which online requests are decoding.
        prompt_share: Share of the time in which online prompts are computed.
        beside: Offline rate beside online requests, at the best price.
        alone: Offline rate without online requests, at the best price.
    """

    tokens_per_s: float
    online_share: float
    prompt_share: float
    beside: float
    alone: float


@dataclass(frozen=True, slots=True)
class _Step:
    prompt: int
    output: int
    time_s: float


def ceiling(
    model: LatencyModel,
    reference: Sequence[SystemRun],
    targets: Targets,
    shape: OfflineShape,
    online_context: int,
) -> Ceiling:
    """The bound for the load of these runs without offline work.

    Args:
        model: Of the engine that was measured.
        reference: Runs of online-only.
        targets: What co-serving has to keep.
        shape: Offline requests.
        online_context: Tokens an online request has in its KV, on average.
    """
    total_s = sum(run.result.duration_s for run in reference)
    present_s = sum(_present_s(run) for run in reference)
    prompts_s = 0.0
    for run in reference:
        for record in run.result.online:
            load = StepLoad()
            load.add_chunk(record.input_tokens, 0)
            prompts_s += model.predict(load)
    prompts_s = min(prompts_s, present_s)
    prompt_share = prompts_s / total_s
    online_share = (present_s - prompts_s) / total_s
    beside = _steps(model, shape, online_context, targets.tbt_s)
    alone = _steps(model, shape, None, float("inf"))
    ratio = shape.input_tokens / shape.output_tokens
    alone_share = 1.0 - online_share - prompt_share

    def bound(mu: float) -> float:
        return online_share * _best(beside, mu, ratio) + alone_share * _best(alone, mu, ratio)

    low, high = -1.0 / ratio, 1.0
    for _ in range(ROUNDS):
        third = (high - low) / 3.0
        if bound(low + third) < bound(high - third):
            high -= third
        else:
            low += third
    mu = (low + high) / 2.0
    return Ceiling(
        bound(mu),
        online_share,
        prompt_share,
        _best(beside, mu, ratio),
        _best(alone, mu, ratio),
    )


def mean_ceiling(
    model: LatencyModel,
    reference: Sequence[SystemRun],
    targets: Mapping[int, Targets],
    shape: OfflineShape,
) -> dict[str, float] | None:
    """The bound of each repeat under its own targets, and their mean; None if nothing is left."""
    found = []
    for run in reference:
        if not run.result.online:
            continue
        lengths = [r.input_tokens + len(r.token_times_s) // 2 for r in run.result.online]
        context = round(sum(lengths) / len(lengths))
        bound = ceiling(model, [run], targets[run.repeat], shape, context)
        found.append(dataclasses.asdict(bound))
    if not any(bound["tokens_per_s"] for bound in found):
        return None
    return {name: sum(bound[name] for bound in found) / len(found) for name in found[0]}


def _present_s(run: SystemRun) -> float:
    """Time of the window in which at least one online request was there."""
    end_s = run.result.duration_s
    spans = sorted(
        (record.scheduled_s, min(end_s, record.token_times_s[-1] if record.done else end_s))
        for record in run.result.online
    )
    present_s = reached_s = 0.0
    for start_s, stop_s in spans:
        present_s += max(0.0, stop_s - max(start_s, reached_s))
        reached_s = max(reached_s, stop_s)
    return present_s


def _steps(
    model: LatencyModel, shape: OfflineShape, online_context: int | None, bound_s: float
) -> list[_Step]:
    """Every kind of step on a grid of chunk sizes and decoding requests that ends in time."""
    middle = shape.input_tokens // 2
    context = shape.input_tokens + shape.output_tokens // 2
    found: list[_Step] = []
    for chunk in CHUNKS:
        if chunk > shape.max_chunk_tokens:
            break
        for rows in range(shape.slots + 1):
            if chunk + rows == 0:
                continue
            load = StepLoad()
            if online_context is not None:
                load.add_decode(online_context)
            for _ in range(rows):
                load.add_decode(context)
            if chunk:
                load.add_chunk(chunk, max(0, middle - chunk // 2))
            time_s = model.predict(load)
            if time_s <= bound_s:
                found.append(_Step(chunk, rows, time_s))
    return found


def _best(steps: Sequence[_Step], mu: float, ratio: float) -> float:
    rates = [
        (step.prompt * (1.0 - mu) + step.output * (1.0 + ratio * mu)) / step.time_s
        for step in steps
    ]
    return max([0.0, *rates])
