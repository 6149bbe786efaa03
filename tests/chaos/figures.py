"""What a run came to: a table by kind of death, and a file of results with every kill in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from bench.paths import RESULTS
from bench.report import environment
from tests.chaos.deaths import Death
from tests.chaos.proof import Findings
from tests.chaos.victims import Kind

RECOVERY_P99_S = 30.0
RELEASED_S = 10.0
LINE_AFTER_READY_S = 30.0


def quantile(values: Sequence[float], part: float) -> float:
    """The nearest-rank quantile."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "num": len(values),
        "p50_s": round(quantile(values, 0.5), 3),
        "p99_s": round(quantile(values, 0.99), 3),
        "max_s": round(max(values), 3),
    }


def recovery_s(death: Death) -> float:
    """From the kill to the next finished line; with an engine's own death, from its return."""
    if death.line_after_ready_s is not None:
        return death.line_after_ready_s
    return death.next_line_s


def summary(deaths: Sequence[Death]) -> dict[str, Any]:
    """Recovery by kind, and over all of them."""
    by_kind = {
        kind.value: spread([recovery_s(one) for one in deaths if one.kind is kind])
        for kind in Kind
        if any(one.kind is kind for one in deaths)
    }
    figures: dict[str, Any] = {
        "recovery": spread([recovery_s(one) for one in deaths]),
        "recovery_by_kind": by_kind,
        "num_kills": len(deaths),
        "fewest_rows_in_flight_at_a_kill": min(one.in_flight.num for one in deaths),
    }
    released = [one.released_s for one in deaths if one.released_s is not None]
    if released:
        figures["engine_rows_released"] = spread(released)
    return figures


def missed(figures: dict[str, Any], findings: Findings) -> list[str]:
    """What was asked for and did not come."""
    wrong = [f"{name}: {num}" for name, num in findings.faults.items()]
    if figures["fewest_rows_in_flight_at_a_kill"] < 1:
        wrong.append("a kill with nothing in flight")
    if figures["recovery"]["p99_s"] > RECOVERY_P99_S:
        wrong.append(f"recovery P99 {figures['recovery']['p99_s']} s > {RECOVERY_P99_S} s")
    engine = figures["recovery_by_kind"].get(Kind.ENGINE.value)
    if engine and engine["max_s"] > LINE_AFTER_READY_S:
        wrong.append(f"next line {engine['max_s']} s after the engine was ready")
    if figures.get("engine_rows_released", {}).get("max_s", 0.0) > RELEASED_S:
        wrong.append(f"rows released {figures['engine_rows_released']['max_s']} s after its death")
    return wrong


def table(figures: dict[str, Any]) -> str:
    """For people."""
    rows = [f"{'killed':30}{'kills':>6}{'P50':>9}{'P99':>9}{'max':>9}   seconds to the next line"]
    every = {**figures["recovery_by_kind"], "all": figures["recovery"]}
    for name, one in every.items():
        rows.append(
            f"{name:30}{one['num']:6}{one['p50_s']:9.2f}{one['p99_s']:9.2f}{one['max_s']:9.2f}"
        )
    if "engine_rows_released" in figures:
        rows.append(f"rows of a dead engine released: {figures['engine_rows_released']}")
    return "\n".join(rows)


def write(
    name: str,
    setting: dict[str, Any],
    deaths: Sequence[Death],
    figures: dict[str, Any],
    findings: Findings,
) -> Path:
    """`bench/results/NAME.json`."""
    body = {
        "name": name,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),  # noqa: TID251
        "environment": environment(),
        "setting": setting,
        "measured": figures,
        "proof": asdict(findings),
        "targets": {
            "recovery_p99_s": RECOVERY_P99_S,
            "engine_rows_released_s": RELEASED_S,
            "line_after_engine_ready_s": LINE_AFTER_READY_S,
        },
        "missed": missed(figures, findings),
        "kills": [_told(one, deaths[0].at_s) for one in deaths],
    }
    path = RESULTS / f"{name}.json"
    path.write_bytes(orjson.dumps(body, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n")
    return path


def _told(death: Death, start_s: float) -> dict[str, Any]:
    told = {
        "number": death.number,
        "kind": death.kind.value,
        "at_s": round(death.at_s - start_s, 2),
        "num_killed": death.num_killed,
        "rows_in_flight": death.in_flight.num,
        "next_line_s": round(death.next_line_s, 3),
    }
    for name in ("released_s", "ready_s", "line_after_ready_s"):
        value = getattr(death, name)
        if value is not None:
            told[name] = round(value, 3)
    return told
