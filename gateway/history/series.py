"""The series of the history, and how the figures of each are read from a report. Pure.

ttft:online  tbt:online  ttft:flex  tbt:flex    a model's streams (`Distribution.figures`)
beside:ttft  beside:tbt  apart:ttft  apart:tbt  an engine's online requests (likewise)
engine                                          its counters and sampled gauges (`EngineTime`)
answers                                         responses to prompts, of each HTTP status how many
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from prometheus_client import Counter

from engine_adapter.client.base import (
    CHAT_PATH,
    COMPLETIONS_PATH,
    EMBEDDINGS_PATH,
    RESPONSES_PATH,
    EngineFacts,
)
from engine_adapter.scheduling.distribution import EDGES_S
from gateway.observability.latency_metrics import StreamLatency

PROMPT_ROUTES: Final = frozenset(
    prefix + path.removeprefix("/v1")
    for path in (CHAT_PATH, COMPLETIONS_PATH, EMBEDDINGS_PATH, RESPONSES_PATH)
    for prefix in ("", "/v1")
)

NUM_OF_DISTRIBUTION: Final = 3 + len(EDGES_S) + 1

COUNTERS: Final = {
    "steps": "steps",
    "online_tokens": "online_tokens",
    "harvested_tokens": "offline_tokens",
    "flex_tokens": "flex_tokens",
    "step_s": "step_s",
    "aborts": "aborts",
    "drops": "drops",
}
"""What only grows: its name here -> its place in the report; harvested are flex and offline."""


class EngineTime(NamedTuple):
    """What an engine did in a point, or all of them: the figures of `engine` in their stored order.

    First what only grows, `COUNTERS` and the seconds of stops. The others are sampled at each
    write and added up: `kv_held / kv_samples` is the mean share in use. Points of earlier versions
    have fewer figures.
    """

    steps: float = 0.0
    online_tokens: float = 0.0
    harvested_tokens: float = 0.0
    flex_tokens: float = 0.0
    step_s: float = 0.0
    aborts: float = 0.0
    drops: float = 0.0
    stop_s: float = 0.0

    asked: float = 0.0
    up: float = 0.0
    kv_samples: float = 0.0
    kv_held: float = 0.0
    host_samples: float = 0.0
    host_held: float = 0.0
    slowdown_samples: float = 0.0
    slowdown: float = 0.0
    draining: float = 0.0
    restarts: float = 0.0


NUM_CUMULATIVE: Final = len(COUNTERS) + 1
ANSWERS: Final = "answers"
ISOLATION: Final = tuple((kind, of) for kind in ("beside", "apart") for of in ("ttft", "tbt"))


def stream_figures(
    streams: Mapping[tuple[str, str], StreamLatency],
) -> dict[tuple[str, str], list[float]]:
    """Figures of this process's streams so far, by (series, model)."""
    return {
        (f"{of}:{word}", model): one.figures()
        for (model, word), stream in streams.items()
        for of, one in (("ttft", stream.ttft), ("tbt", stream.tbt))
    }


def answer_figures(requests: Counter) -> dict[tuple[str, str], list[float]]:
    """Responses to prompts of this process so far, by (series, status)."""
    found: dict[tuple[str, str], list[float]] = {}
    for metric in requests.collect():
        for sample in metric.samples:
            labels = sample.labels
            if sample.name.endswith("_total") and is_prompt(labels["method"], labels["route"]):
                total = found.setdefault((ANSWERS, labels["status"]), [0.0])
                total[0] += sample.value
    return found


def is_prompt(method: str, route: str) -> bool:
    """Whether requests with these labels ask an engine for an answer."""
    return method == "POST" and route in PROMPT_ROUTES


def engine_totals(facts: EngineFacts) -> dict[str, list[float]]:
    """What an engine has counted since it started, by series; of `engine` the first figures."""
    stops = facts.reported("stops_by_layer")
    layers = stops.values() if isinstance(stops, Mapping) else ()
    stop_s = sum(_number(one.get("sum_s")) for one in layers if isinstance(one, Mapping))
    counters = [_number(facts.reported(path)) for path in COUNTERS.values()]
    totals = {"engine": [*counters, stop_s]}
    for kind, of in ISOLATION:
        figures = facts.reported(f"isolation.{of}.{kind}")
        if isinstance(figures, Sequence) and len(figures) == NUM_OF_DISTRIBUTION:
            totals[f"{kind}:{of}"] = [float(figure) for figure in figures]
    return totals


def engine_gauges(
    facts: EngineFacts | None, *, up: bool, draining: bool = False, restarted: bool = False
) -> list[float]:
    """What is sampled of an engine at one write: the figures behind those that only grow."""
    kv = host = ratio = None
    if up and facts is not None:
        kv, host, ratio = kv_held(facts), host_held(facts), slowdown(facts)
    sampled = EngineTime(
        asked=1.0,
        up=float(up),
        kv_samples=float(kv is not None),
        kv_held=kv or 0.0,
        host_samples=float(host is not None),
        host_held=host or 0.0,
        slowdown_samples=float(ratio is not None),
        slowdown=ratio or 0.0,
        draining=float(draining),
        restarts=float(restarted),
    )
    return [*sampled[NUM_CUMULATIVE:]]


def kv_held(facts: EngineFacts) -> float | None:
    """Share of device KV memory that requests hold, 0 to 1; none where it is not reported.

    What is only kept because it may be used again (evictable) counts as free.
    """
    whole = facts.kv_tokens
    page_tokens, free = facts.reported("page_tokens"), facts.reported("free_pages")
    if not whole or not isinstance(page_tokens, int) or not isinstance(free, int):
        return None
    evictable = _number(facts.reported("evictable_pages"))
    return min(1.0, max(0.0, 1.0 - (free + evictable) * page_tokens / whole))


def host_held(facts: EngineFacts) -> float | None:
    """Share of the host's checkpoint pool in use, 0 to 1; none where there is no pool."""
    total, free = facts.reported("host_total_pages"), facts.reported("host_free_pages")
    if not isinstance(total, int) or not isinstance(free, int) or total <= 0:
        return None
    return 1.0 - free / total


def slowdown(facts: EngineFacts) -> float | None:
    """Step times now over the profiled ones; none where it is not reported."""
    ratio = facts.reported("slowdown")
    return float(ratio) if isinstance(ratio, int | float) else None


def gained(now: Sequence[float], before: Sequence[float] | None) -> list[float]:
    """What totals grew by; of those that began anew in between, all."""
    if before is None or len(before) != len(now) or began_anew(now, before):
        return [*now]
    return [n - b for n, b in zip(now, before, strict=True)]


def began_anew(now: Sequence[float], before: Sequence[float] | None) -> bool:
    """Whether totals fell: who counts them was restarted."""
    return before is not None and any(b > n for n, b in zip(now, before, strict=False))


def _number(found: Any) -> float:
    return float(found) if isinstance(found, int | float) else 0.0
