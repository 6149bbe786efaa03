"""The page docs/reproduction.md and its plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from xml.sax.saxutils import escape

from bench.reproduce.figure import Cell, Experiment, Explanation, Figure

Found = Sequence[tuple[Experiment, list[Cell]]]
HEAD = """# The papers' figures, reproduced

For those who ask whether the policies here are the systems of the papers. Each paper's set-up was run on the [engine
in memory](simulate.md) with [step tables](gpu-tables.md), and its number stands beside ours. Everything below is
*simulated*; nothing was measured on a GPU.

- Ratios and orders are compared, because absolute numbers hold only on a paper's own GPU and model.
- **Bold** means near: within 30 % of the paper, or inside the bound that it claims.
- Ours is the mean over seeds, with the least and the most where one is more than 5 % away from it.
- An order has our values, the paper's best system first.
- Where a figure is not near, one thing or a few of the set-up were changed. The last column has the change that brings
  it nearest. It says what carries the figure here, not that the paper had that set-up. All changes that were tried
  are in `bench/reproduce/explain.py`, their figures in `bench/results/reproduction.json`.

`make reproduce` writes this page in 18 minutes of processor time. It is not edited by hand.
"""
SYSTEMS = {
    "ConServe v2": (
        "C is ConServe (`conserve_v2`), NP runs without preemption (`non_preemptive`), and SP is Sarathi with "
        "priorities (`sarathi_p`)."
    ),
    "ConServe v1": (
        "C1 is ConServe (`conserve_v1`). `non_preemptive` stands for vLLM++ and for naive priorities."
    ),
    "EcoServe": (
        "The names are those of [our policies](policies.md). JCT is the time from arrival to the last token. EcoServe "
        "sets memory aside for a whole answer, and lends what is still unused to shorter ones. Where the paper has a "
        "range, in brackets, its middle is compared."
    ),
    "BROS": "RR is `round_robin`. *Real-time* requests are chat, *best-effort* ones are offline work.",
}
"""What a paper's section calls the systems."""
RAW = {"jct_mean": "mean JCT, s", "throughput": "requests a second"}
"""Columns of experiments that no paper has."""
LEAST_SHOWN = 0.01
SAME = 0.05
"""Of the mean, what seeds may differ by without a word of it."""


def mean(figure: Figure, cells: list[Cell]) -> tuple[float, float, float]:
    """Mean, least and most over seeds."""
    values = [figure.ours(cell) for cell in cells]
    return sum(values) / len(values), min(values), max(values)


Explained = Sequence[tuple[Explanation, list[Cell]]]


def page(found: Found, seeds: Sequence[int], explained: Explained = ()) -> str:
    """The whole page."""
    rows: list[str] = []
    parts: list[str] = []
    for paper, group in groupby(found, key=lambda pair: pair[0].paper):
        shown = list(group)
        figures = [f.holds(mean(f, cells)[0]) for one, cells in shown for f in one.figures]
        orders = [order.holds(cells) for one, cells in shown for order in one.orders]
        rows.append(f"| {paper} | {_of(figures)} | {_of(orders)} |")
        name = paper.lower().replace(" ", "-")
        parts += [f"## {paper}\n", _wrapped(SYSTEMS[paper]), ""]
        parts.append(f"![{paper}: our number over the paper's](images/reproduction-{name}.svg)\n")
        for experiment, cells in shown:
            changes = [pair for pair in explained if pair[0].of is experiment]
            parts.append(_section(experiment, cells, changes))
    counts = sorted({len(cells) for _, cells in found})
    made = " to ".join(map(str, sorted({counts[0], counts[-1]})))
    summary = [
        f"\nEach experiment ran with {made} of the seeds {', '.join(map(str, seeds))}:\n",
        "| paper | figures that are near | orders that hold |",
        "|---|---|---|",
        *rows,
        "",
    ]
    return HEAD + "\n".join([*summary, *parts]).rstrip("\n") + "\n"


def _of(held: Sequence[bool]) -> str:
    return f"{sum(held)} of {len(held)}"


def _section(experiment: Experiment, cells: list[Cell], explained: Explained) -> str:
    lines = [
        f"### {experiment.name[0].upper()}{experiment.name[1:]}\n",
        _wrapped(experiment.setup),
        "",
    ]
    if experiment.figures:
        nearest = {
            number: _nearest(experiment.figures[number - 1], one, of)
            for one, of in explained
            for number in one.figures
        }
        rest = (" nearest, with a change |", "---|") if nearest else ("", "")
        lines += [
            f"| figure | in the paper | paper | ours |{rest[0]}",
            f"|---|---|---|---|{rest[1]}",
        ]
        for number, figure in enumerate(experiment.figures, start=1):
            row = [figure.what, figure.where, _paper(figure), _ours(figure, cells)]
            if nearest:
                row.append(nearest.get(number, ""))
            lines.append(f"| {' | '.join(row)} |")
        lines.append("")
    for order in experiment.orders:
        values = ", ".join(
            f"{name} {_number(value)}"
            for name, value in zip(order.systems, order.values(cells), strict=True)
        )
        holds = "holds" if order.holds(cells) else "does not hold"
        lines.append(_wrapped(f"Order by {order.what} ({order.where}) {holds}: {values}."))
        lines.append("")
    if not experiment.figures and not experiment.orders:
        lines += [_raw(cells), ""]
    if experiment.why:
        lines += [_wrapped(experiment.why), ""]
    for one, _ in explained:
        lines += [_wrapped(one.why), ""]
    return "\n".join(lines)


def _paper(figure: Figure) -> str:
    return f"{figure.bound} {figure.paper:g}".strip()


def _ours(figure: Figure, cells: list[Cell]) -> str:
    ours, least, most = mean(figure, cells)
    shown = _marked(figure, ours)
    if max(most - ours, ours - least) <= SAME * abs(ours):
        return shown
    return f"{shown} ({_number(least)} to {_number(most)})"


def _marked(figure: Figure, value: float) -> str:
    """Bold if it is near."""
    return f"**{_number(value)}**" if figure.holds(value) else _number(value)


def _nearest(figure: Figure, one: Explanation, cells: list[Cell]) -> str:
    """The change that brings a figure nearest to the paper's, and what it brings."""

    def far(value: float) -> float:
        return 0.0 if figure.bound and figure.holds(value) else abs(value / figure.paper - 1.0)

    values = [mean(figure, one.cells(cells, number))[0] for number in range(len(one.changes))]
    best = min(range(len(values)), key=lambda number: far(values[number]))
    return f"{_marked(figure, values[best])}: {one.changes[best].what}"


def _raw(cells: list[Cell]) -> str:
    """Means of each system, for experiments that no paper has."""
    first = next(iter(cells[0].values()))
    keys = [key for key in RAW if key in first] or list(first)
    lines = [
        f"| | {' | '.join(RAW.get(key, key) for key in keys)} |",
        "|---" * (len(keys) + 1) + "|",
    ]
    for name in cells[0]:
        values = [sum(cell[name][key] for cell in cells) / len(cells) for key in keys]
        lines.append(f"| {name} | {' | '.join(map(_number, values))} |")
    return "\n".join(lines)


def _number(value: float) -> str:
    if value == 0.0:
        return "0"
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
