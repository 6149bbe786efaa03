"""The frontier: offline tokens over what chat's first tokens and gaps become, simulated.

    python -m bench.frontier [--devices h200-llama-3.1-8b] [--loads azure-conv] [--seeds 101]

Chat is that of bench/cells.py; its own P99 of first tokens and of gaps, without offline work, are
1. `conserve_v2` is shown targets of a half to three times these: both, and either of them with the
other one out of the way; with both out of the way the chunk is swept. Stock engines know no
targets. What an operator can turn there is swept: offline requests outstanding, and for SGLang's
priorities (`sglang_priority`) the chunk and whether prompts share steps with decoding requests.
Admission by priority without preemption (`non_preemptive`) mixes always. Writes
bench/results/frontier.json and the plot of docs/scheduler-figures.md, and fails if a point of
stock lies above our line.

Quoted in docs/scheduler-figures.md.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

from bench.cells import (
    FOR_RULES,
    OUTSTANDING,
    Case,
    cases_of,
    cell_parser,
    make_device,
    offline_lengths,
    online_requests,
    p99s,
    run_cases,
    steady_load,
)
from bench.paths import RESULTS, ROOT
from bench.report import write_cells
from engine_adapter.scheduling.policies.registry import create_policy
from engine_adapter.scheduling.targets import Slo
from lab.simulator.device import engine_for
from lab.simulator.replay import replay
from lab.simulator.times import Noise
from lab.workload.summary import SystemRun

OUT = RESULTS / "frontier.json"
PLOT = ROOT / "docs" / "images" / "frontier.svg"
OURS, NON_PREEMPTIVE, PRIORITY = "conserve_v2", "non_preemptive", "sglang_priority"
SCALES = (0.5, 0.7, 0.85, 1.0, 1.25, 1.6, 2.2, 3.0)
TIGHT = (0.25, 0.35)
LOOSE = 5.0
BOTH, CHUNK, STOCK = "both targets", "chunk", "stock"
ADMITTED = (4, 8, 16, 32, 64, 128, 256)
CHUNKS = (256, 512, 1024, 2048, 4096)
PRIORITY_ADMITTED = (16, 64, 256)
WIDTH, HEIGHT, MARGIN, MOST_RATIO = 430, 300, 46, 5.0
AXES = {"ttft_s": "P99 of first tokens", "gap_s": "P99 of gaps"}


@dataclass(frozen=True)
class Point:
    """One setting of one policy: its figures over online-only's, and offline tokens a second."""

    policy: str
    line: str
    setting: str
    ttft_s: float
    gap_s: float
    offline: float


def sweep(case: Case, workloads: Path) -> list[Point]:
    """Every setting over one case."""
    device = make_device(case.device)
    online = online_requests(case, device, workloads)
    duration_s = online[-1].arrival_s
    load = steady_load(case, device, online)

    def play(policy: str, slo: Slo, outstanding: int, setting: str = "") -> SystemRun:
        offline = offline_lengths(case) if outstanding else None
        noise = Noise(0.08, 0.4, f"{case.seed}/{policy}")
        own = make_device(case.device, int(setting)) if policy == OURS and setting else device
        made = create_policy(policy, own.model)
        shown = replace(load, offline=offline, num_outstanding=outstanding)
        engine = engine_for(own, f"{policy}@{setting}")
        return replay(engine, made, shown, slo, noise=noise)

    base = p99s(play("online_only", Slo(1e3, 1e3), 0))
    ttft_s, gap_s = base["ttft_s"], base["gap_s"]
    targets = Slo(ttft_s, gap_s)
    swept_targets = {
        BOTH: [(scale, targets.scaled(scale)) for scale in SCALES],
        "ttft_s": [(scale, Slo(scale * ttft_s, LOOSE * gap_s)) for scale in SCALES],
        "gap_s": [(scale, Slo(LOOSE * ttft_s, scale * gap_s)) for scale in (*TIGHT, *SCALES)],
    }

    def point(policy: str, setting: str, run: SystemRun, line: str = STOCK) -> Point:
        seen = p99s(run)
        offline = run.counters["offline_tokens"] / duration_s
        ttft_s, gap_s = (seen[axis] / base[axis] for axis in AXES)
        return Point(policy, line, setting, ttft_s, gap_s, offline)

    ours = [
        point(OURS, f"{line} × {scale:g}", play(OURS, slo, OUTSTANDING), line)
        for line, settings in swept_targets.items()
        for scale, slo in settings
    ]
    loose = targets.scaled(LOOSE)
    ours += [
        point(OURS, f"chunk of {chunk}", play(OURS, loose, OUTSTANDING, f"{chunk}"), CHUNK)
        for chunk in CHUNKS
    ]
    plain = [
        point(NON_PREEMPTIVE, f"{num} outstanding", play(NON_PREEMPTIVE, targets, num))
        for num in ADMITTED
    ]
    swept = [
        point(PRIORITY, f"{at}, {num} outstanding", play(PRIORITY, targets, num, at))
        for at in (f"{chunk}{mixed}" for chunk in CHUNKS for mixed in ("", "+mixed"))
        for num in PRIORITY_ADMITTED
    ]
    return ours + plain + swept


def averages(cells: list[list[Point]]) -> list[Point]:
    """Means over cases, setting by setting; offline as a share of the most that stock gives."""
    found: list[Point] = []
    most = [max(point.offline for point in cell if point.line == STOCK) for cell in cells]
    for same in zip(*cells, strict=True):
        share = mean(point.offline / top for point, top in zip(same, most, strict=True))
        ttft_s, gap_s = (mean(getattr(point, axis) for point in same) for axis in AXES)
        one = same[0]
        found.append(Point(one.policy, one.line, one.setting, ttft_s, gap_s, share))
    return found


def above(points: list[Point], axis: str) -> list[Point]:
    """Points of stock with more offline work than any line of ours has at the same ratio."""
    ours = [sorted(line) for line in _lines(points, axis).values()]
    return [
        point
        for point in points
        if point.line == STOCK
        and point.offline > max(_at(line, getattr(point, axis)) for line in ours)
    ]


def beaten(points: list[Point]) -> list[Point]:
    """Ours that a point of stock beats in first tokens, gaps and offline work together."""
    stock = [point for point in points if point.line == STOCK]
    return [
        mine
        for mine in points
        if mine.line != STOCK
        and any(
            one.ttft_s <= mine.ttft_s and one.gap_s <= mine.gap_s and one.offline >= mine.offline
            for one in stock
        )
    ]


def _lines(points: list[Point], axis: str) -> dict[str, list[tuple[float, float]]]:
    """Our lines of a panel: both targets swept, the axis' own, and the chunk."""
    return {
        line: [(getattr(p, axis), p.offline) for p in points if p.line == line]
        for line in (BOTH, axis, CHUNK)
    }


def _at(line: list[tuple[float, float]], ratio: float) -> float:
    """The most our line gives up to that ratio, straight between its points."""
    best = 0.0
    for (left, low), (right, high) in pairwise(line):
        if ratio >= right:
            best = max(best, low, high)
        elif ratio >= left:
            best = max(best, low + (high - low) * (ratio - left) / (right - left))
    return best


WIDE, HIGH = WIDTH - MARGIN - 10, HEIGHT - 2 * MARGIN
LINES = {
    OURS: ("coserve: targets and chunk swept; the line joins the best", "#1f77b4", 16),
    NON_PREEMPTIVE: ("no preemption, outstanding swept", "#d62728", 28),
    PRIORITY: ("SGLang's priorities: chunk, mixing and outstanding swept", "#2ca02c", 40),
}


def _spot(left: float, ratio: float, share: float) -> tuple[float, float]:
    x = left + WIDE * min(1.0, ratio / MOST_RATIO)
    return round(x, 1), round(MARGIN + HIGH * (1.1 - share) / 1.1, 1)


def _best(spots: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those with more offline work than each of a lower ratio."""
    found: list[tuple[float, float]] = []
    for spot in sorted(spots):
        if not found or spot[1] > found[-1][1]:
            found.append(spot)
    return found


def _panel(points: list[Point], axis: str, left: int) -> list[str]:
    """One axis: a frame, its numbers, our line, and both policies' points."""
    parts = [
        f'<rect x="{left}" y="{MARGIN}" width="{WIDE}" height="{HIGH}" fill="none" stroke="#888"/>',
        f'<text x="{left + WIDE / 2}" y="{HEIGHT - 10}" text-anchor="middle">'
        f"{AXES[axis]}, over chat alone</text>",
    ]
    for ratio in range(int(MOST_RATIO) + 1):
        x, y = _spot(left, ratio, 0.0)
        parts.append(f'<text x="{x}" y="{y + 14}" text-anchor="middle">{ratio}</text>')
    for share in (0.25, 0.5, 0.75, 1.0):
        x, y = _spot(left, 0.0, share)
        parts.append(f'<text x="{x - 4}" y="{y + 4}" text-anchor="end">{share:.0%}</text>')
    for policy, (name, colour, y) in LINES.items():
        if policy == OURS:
            spots = [spot for line in _lines(points, axis).values() for spot in line]
            path = " ".join("{},{}".format(*_spot(left, *spot)) for spot in _best(spots))
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}"/>')
        else:
            spots = [(getattr(p, axis), p.offline) for p in points if p.policy == policy]
        mine = [_spot(left, *spot) for spot in spots]
        parts += [f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"/>' for x, y in mine]
        parts.append(f'<text x="{left}" y="{y}" fill="{colour}">{name}</text>')
    return parts


def plot(points: list[Point]) -> str:
    """Both axes side by side, as SVG."""
    width = len(AXES) * (WIDTH + 20)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="11">'
    )
    panels = [
        part
        for number, axis in enumerate(AXES)
        for part in _panel(points, axis, MARGIN + number * (WIDTH + 20))
    ]
    return "\n".join(
        [head, f'<rect width="{width}" height="{HEIGHT}" fill="white"/>', *panels, "</svg>", ""]
    )


def main() -> int:
    """Sweep, write down, draw."""
    devices = ("h200-llama-3.1-8b", "h100-llama-3.1-8b")
    parser = cell_parser(__doc__, devices=devices, loads=("azure-conv", "burstgpt"))
    parser.add_argument("--seeds", default="101,102")
    args = parser.parse_args()
    cases = cases_of(args.devices, args.loads, args.seeds, **FOR_RULES)
    cells = run_cases(cases, sweep, args)
    points = averages(cells)
    higher = {axis: above(points, axis) for axis in AXES}
    written: dict[str, Any] = {
        "cases": [[case.device, case.load, case.seed] for case in cases],
        "points": [vars(point) for point in points],
        "stock_above": {axis: [vars(p) for p in found] for axis, found in higher.items()},
        "beaten_in_all_three": [vars(p) for p in beaten(points)],
    }
    write_cells(OUT, written)
    PLOT.write_text(plot(points))
    for point in points:
        print(
            f"{point.policy:15} {point.setting:27}  offline {point.offline:6.1%}  "
            f"P99 ttft {point.ttft_s:5.2f}  gap {point.gap_s:5.2f}"
        )
    for axis, found in higher.items():
        print(f"{AXES[axis]}: {len(found)} points of stock above our line")
    print(f"{len(beaten(points))} of our points are beaten in all three by one of stock's")
    return 1 if any(higher.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
