"""The page docs/reproduction.md and its plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from xml.sax.saxutils import escape

from bench.reproduce.figure import Cell, Experiment, Explanation, Figure

Found = Sequence[tuple[Experiment, list[Cell]]]
HEAD = """# The papers' figures, reproduced

For those who ask whether the policies here are the systems of the papers. Each paper's set-up was run again on the
[engine in memory](simulate.md) with [step tables](gpu-tables.md), and its number stands beside ours. Everything below
is *simulated*; nothing was measured on a GPU.

- Ratios and orders are compared. Absolute numbers hold only on a paper's own GPU and model.
- *Near* means within 30 %, or inside the bound that a paper claims.
- Where a paper contradicts itself both numbers are given.
- What is not near is followed by experiments: one thing changed, ours before and after (**bold**: near, or in its
  bound). They say which difference of set-up carries the figure, not that the paper had that set-up.

`make reproduce` writes this page; it is not edited by hand. That takes 18 minutes of processor time, and half as
long on two free cores.
"""
LEAST_SHOWN = 0.01


def mean(figure: Figure, cells: list[Cell]) -> tuple[float, float, float]:
    """Mean, least and most over seeds."""
    values = [figure.ours(cell) for cell in cells]
    return sum(values) / len(values), min(values), max(values)


Explained = Sequence[tuple[Explanation, list[Cell]]]


def page(found: Found, seeds: Sequence[int], explained: Explained = ()) -> str:
    """The whole page."""
    near = num = orders = kept = 0
    parts: list[str] = []
    for paper, group in groupby(found, key=lambda pair: pair[0].paper):
        parts.append(f"\n## {paper}\n")
        name = paper.lower().replace(" ", "-")
        parts.append(f"![{paper}: our number over the paper's](images/reproduction-{name}.svg)\n")
        for experiment, cells in group:
            parts.append(_section(experiment, cells))
            parts += [_explanation(one, cells, of) for one, of in explained if one.of is experiment]
            num += len(experiment.figures)
            near += sum(f.holds(mean(f, cells)[0]) for f in experiment.figures)
            orders += len(experiment.orders)
            kept += sum(order.holds(cells) for order in experiment.orders)
    counts = sorted(len(cells) for _, cells in found)
    made = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
    summary = (
        f"\n**{near} of {num} figures are near, {kept} of {orders} orders hold.** Each experiment ran with\n"
        f"{made} of the seeds {', '.join(map(str, seeds))}.\n"
    )
    return HEAD + summary + "\n".join(parts)


def _section(experiment: Experiment, cells: list[Cell]) -> str:
    lines = [
        f"### {experiment.name[0].upper()}{experiment.name[1:]}\n",
        _wrapped(experiment.setup),
        "",
    ]
    if experiment.figures:
        lines += ["| figure | where | paper | ours (least to most) | ours / paper | near |"]
        lines += ["|---|---|---|---|---|---|"]
        for figure in experiment.figures:
            ours, least, most = mean(figure, cells)
            over = f"{ours / figure.paper:.2f}" if figure.paper else ""
            near = "yes" if figure.holds(ours) else "no"
            paper = f"{figure.bound} {figure.paper:g}".strip()
            lines.append(
                f"| {figure.what} | {figure.where} | {paper} | {_number(ours)} ({_number(least)} to "
                f"{_number(most)}) | {over} | {near} |"
            )
        lines.append("")
    for order in experiment.orders:
        values = ", ".join(
            f"{name} {_number(value)}"
            for name, value in zip(order.systems, order.values(cells), strict=True)
        )
        holds = "holds" if order.holds(cells) else "does not hold"
        lines.append(
            _wrapped(f"Order by {order.what} ({order.where}), best first: {values}. It {holds}.")
        )
        lines.append("")
    if not experiment.figures and not experiment.orders:
        lines += [_raw(cells), ""]
    if experiment.why:
        lines += [_wrapped(experiment.why), ""]
    return "\n".join(lines)


def _explanation(one: Explanation, before: list[Cell], cells: list[Cell]) -> str:
    figures = [one.of.figures[number - 1] for number in one.figures]

    def row(what: str, of: list[Cell]) -> str:
        values = [mean(figure, of)[0] for figure in figures]
        shown = [
            f"**{_number(value)}**" if figure.holds(value) else _number(value)
            for figure, value in zip(figures, values, strict=True)
        ]
        return f"| {what} | {' | '.join(shown)} |"

    papers = " | ".join(f"{figure.bound} {figure.paper:g}".strip() for figure in figures)
    lines = [
        f"| what was changed | {' | '.join(figure.what for figure in figures)} |",
        "|---" * (len(figures) + 1) + "|",
        f"| the paper | {papers} |",
        row(f"nothing ({len(cells)} seeds)", before[: len(cells)]),
    ]
    lines += [row(change.what, one.cells(cells, i)) for i, change in enumerate(one.changes)]
    return "\n".join([*lines, "", _wrapped(one.why), ""])


def _raw(cells: list[Cell]) -> str:
    """Means of each system, for experiments that no paper has."""
    keys = ("jct_mean", "ttft_mean", "tbt_mean", "throughput", "retracts", "recomputed")
    shown = [key for key in keys if all(key in figures for figures in cells[0].values())]
    shown = shown or list(next(iter(cells[0].values())))
    lines = [
        f"| | {' | '.join(key.replace('_', ' ') for key in shown)} |",
        "|---" * (len(shown) + 1) + "|",
    ]
    for name in cells[0]:
        values = [sum(cell[name][key] for cell in cells) / len(cells) for key in shown]
        lines.append(f"| {name} | {' | '.join(map(_number, values))} |")
    return "\n".join(lines)


def _number(value: float) -> str:
    if math.isinf(value):
        return "∞"
    if abs(value) >= 100.0:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= LEAST_SHOWN else f"{value:.4f}"


def _wrapped(text: str, width: int = 116) -> str:
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return "\n".join([*lines, line])


def plots(found: Found) -> dict[str, str]:
    """A plot a paper: our number over the paper's, one dot a figure, on a logarithmic scale."""
    made = {}
    for paper, group in groupby(found, key=lambda pair: pair[0].paper):
        rows = [
            (f"{experiment.name}: {figure.what}", mean(figure, cells)[0] / figure.paper, figure)
            for experiment, cells in group
            for figure in experiment.figures
            if figure.paper
        ]
        made[f"reproduction-{paper.lower().replace(' ', '-')}.svg"] = _plot(rows)
    return made


def _plot(rows: list[tuple[str, float, Figure]]) -> str:
    left, right, height = 470, 880, 20
    bottom = height * (len(rows) + 1) + 20

    def x(ratio: float) -> float:
        clipped = min(10.0, max(0.1, ratio)) if ratio > 0.0 else 0.1
        return left + (math.log10(clipped) + 1.0) / 2.0 * (right - left)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="900" height="{bottom + 20}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="900" height="{bottom + 20}" fill="white"/>',
        f'<rect x="{x(0.7):.0f}" y="10" width="{x(1.3) - x(0.7):.0f}" height="{bottom - 10}" fill="#dcefdc"/>',
    ]
    for tick in (0.1, 0.3, 1.0, 3.0, 10.0):
        parts.append(f'<path d="M{x(tick):.0f} 10V{bottom}" stroke="#bbb"/>')
        parts.append(
            f'<text x="{x(tick):.0f}" y="{bottom + 14}" text-anchor="middle">{tick:g}</text>'
        )
    for index, (name, over, figure) in enumerate(rows, start=1):
        y = height * index + 6
        colour = "#2ca02c" if figure.holds(over * figure.paper) else "#d62728"
        parts.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<circle cx="{x(over):.1f}" cy="{y}" r="4" fill="{colour}"/>')
    return "\n".join([*parts, "</svg>", ""])
