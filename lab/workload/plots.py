"""Plots as SVG, written by hand: no plotting library is needed to look at a result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from lab.workload.summary import MS, SystemRun

WIDTH, HEIGHT, MARGIN = 900, 260, 60
COLOURS = ("#1f77b4", "#d62728", "#ff7f0e", "#9467bd", "#2ca02c", "#8c564b", "#17becf")

MOST_POINTS = 4000
"""Dots of one series in a plot; more are a blot and tens of megabytes."""

Point = tuple[float, float]


def write_plots(results: dict[str, Any], runs: Sequence[SystemRun], out: Path) -> None:
    """TTFT, TBT and offline tokens over time, and step times against their predictions."""
    first = [run for run in runs if run.repeat == 0]
    slo = (results["environment"].get("slo_ms") or [{}])[0]
    panels = {
        "ttft": (
            "TTFT in ms over arrival in s",
            {
                run.system: [
                    (r.scheduled_s, r.ttft_s * MS)
                    for r in run.result.online
                    if r.ttft_s is not None
                ]
                for run in first
            },
            slo.get("ttft"),
        ),
        "tbt": (
            "gap between tokens in ms over time in s",
            {
                run.system: [
                    (at_s, gap * MS)
                    for r in run.result.online
                    for at_s, gap in zip(r.gap_ends_s, r.gaps_s, strict=True)
                ]
                for run in first
            },
            slo.get("tbt"),
        ),
        "offline": (
            "offline tokens per second, mean of 5 s",
            {run.system: _smoothed(run) for run in first if run.result.offline},
            None,
        ),
        "steps": (
            "measured step time in ms over predicted step time in ms",
            {
                run.system: [
                    (predicted_ms, measured_ms)
                    for _, predicted_ms, measured_ms in _recent_steps(run)
                ]
                for run in first
                if run.counters
            },
            None,
        ),
    }
    for name, (title, series, line) in panels.items():
        (out / f"{name}.svg").write_text(svg(title, series, line, joined=name == "offline"))


def _recent_steps(run: SystemRun) -> list[tuple[str, float, float]]:
    steps: list[tuple[str, float, float]] = run.counters.get("step_times", {}).get("recent", [])
    return steps


def _smoothed(run: SystemRun, seconds: int = 5) -> list[Point]:
    from lab.workload.report import offline_per_second

    counts = offline_per_second(run)
    return [
        (start + seconds / 2, sum(counts[start : start + seconds]) / seconds)
        for start in range(0, len(counts) - seconds + 1, seconds)
    ]


def _thinned(values: list[Point]) -> list[Point]:
    """At most :data:`MOST_POINTS`, evenly, and with them the highest of all."""
    if len(values) <= MOST_POINTS:
        return values
    return [*values[:: -(-len(values) // MOST_POINTS)], max(values, key=lambda point: point[1])]


def svg(
    title: str,
    series: dict[str, list[Point]],
    line: float | None = None,
    *,
    joined: bool = False,
) -> str:
    """A scatter (or line) plot with a legend and, if given, a dashed horizontal line."""
    if not joined:
        series = {name: _thinned(values) for name, values in series.items()}
    points = [point for values in series.values() for point in values]
    x_max = max((x for x, _ in points), default=1.0) or 1.0
    ordered = sorted(y for _, y in points)
    # The axis ends at the 99.5th percentile: one stall would flatten everything else.
    y_max = max(ordered[int(0.995 * (len(ordered) - 1))] if ordered else 1.0, line or 0.0) or 1.0
    y_max *= 1.1

    def place(x: float, y: float) -> Point:
        return (
            MARGIN + x / x_max * (WIDTH - 2 * MARGIN),
            HEIGHT - MARGIN / 2 - min(y, y_max) / y_max * (HEIGHT - MARGIN),
        )

    left, bottom = place(0.0, 0.0)
    right, top = place(x_max, y_max)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT + 30}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT + 30}" fill="white"/>',
        f'<text x="{MARGIN}" y="18">{escape(title)}</text>',
        f'<path d="M{left:.0f} {top:.0f}V{bottom:.0f}H{right:.0f}" fill="none" stroke="black"/>',
        f'<text x="{left - 6:.0f}" y="{top + 4:.0f}" text-anchor="end">{y_max:.0f}</text>',
        f'<text x="{left - 6:.0f}" y="{bottom:.0f}" text-anchor="end">0</text>',
        f'<text x="{right:.0f}" y="{bottom + 15:.0f}" text-anchor="end">{x_max:.0f}</text>',
    ]
    if line is not None:
        _, y = place(0.0, line)
        parts.append(
            f'<path d="M{left:.0f} {y:.1f}H{right:.0f}" stroke="black" stroke-dasharray="6 4"/>'
        )
    for index, (name, values) in enumerate(series.items()):
        colour = COLOURS[index % len(COLOURS)]
        parts.append(
            f'<text x="{MARGIN + 150 * index}" y="{HEIGHT + 22}" fill="{colour}">'
            f"{escape(name)}</text>"
        )
        placed = [place(x, y) for x, y in values]
        if joined and placed:
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in placed)
            parts.append(f'<path d="M{path}" fill="none" stroke="{colour}"/>')
        else:
            parts += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}" fill-opacity="0.6"/>'
                for x, y in placed
            ]
    return "\n".join([*parts, "</svg>", ""])
