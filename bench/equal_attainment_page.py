"""Tables and plot of docs/which-policy.md, from what bench.equal_attainment wrote down.

python -m bench.equal_attainment_page

What stands between the page's markers is written anew; the words around are its author's. The
second table is of the policies that are close, over several seeds (``SEED_RESULTS``).
"""

from __future__ import annotations

import json
from statistics import mean
from xml.sax.saxutils import escape

from bench.equal_attainment import DEVICE, OUT, TARGETED, Cell
from bench.paths import ROOT
from bench.report import between

PAGE = ROOT / "docs" / "which-policy.md"
SEED_RESULTS = OUT.with_name("equal_attainment_seeds.json")
"""Of ``python -m bench.equal_attainment --policies ... --seeds 2,3,4 --out`` this file."""
PLOT = ROOT / "docs" / "images" / "which-policy.svg"
BEGIN, END = "<!-- tables: python -m bench.equal_attainment_page -->", "<!-- end of tables -->"
BEGIN_SEEDS, END_SEEDS = (
    "<!-- seeds: python -m bench.equal_attainment_page -->",
    "<!-- end of seeds -->",
)
DEFAULT = "conserve_v2"
WIDTH, BAR, LEFT = 900, 16, 220


def averages(cells: list[Cell]) -> dict[str, float] | None:
    """Means over seeds; None if the targets were missed at any setting on one of them."""
    if any(cell["figures"] is None for cell in cells):
        return None
    figures = [cell["figures"] for cell in cells]
    return {key: mean(one[key] for one in figures) for key in figures[0]}


def by_policy(cells: list[Cell], trace: str) -> list[tuple[str, list[Cell]]]:
    """Cells of a trace, the most offline tokens first."""
    names = dict.fromkeys(cell["policy"] for cell in cells if cell["trace"] == trace)
    groups = [
        (name, [c for c in cells if (c["trace"], c["policy"]) == (trace, name)]) for name in names
    ]
    return sorted(groups, key=lambda group: -(averages(group[1]) or {"offline": -1.0})["offline"])


def setting(cells: list[Cell], *, steps: bool = False) -> str:
    """The settings found, seed by seed; with the tokens of a step if asked."""
    if cells[0]["policy"].partition(" ")[0] in TARGETED:
        found = [f"{cell['knob'][0]:g} × gap target" for cell in cells]
    else:
        found = [f"{cell['knob'][1]} outstanding" for cell in cells]
    if steps:
        found = [f"{text} ({cell['knob'][2]:,})" for text, cell in zip(found, cells, strict=True)]
    return ", ".join(found)


def ms(figures: dict[str, float], name: str) -> str:
    """A time in milliseconds."""
    return f"{1e3 * figures[name]:,.0f}"


def table(cells: list[Cell], trace: str) -> str:
    """One trace."""
    mine = [cell for cell in cells if cell["trace"] == trace]
    ttft, gap = (mean(cell["targets_ms"][i] for cell in mine) for i in (0, 1))
    alone = mine[0]["alone"]
    made = "the trace" if mine[0]["real"] else "generated arrivals with the trace's lengths"
    lines = [
        f"### {trace}\n",
        f"Chat from {made}. Targets: TTFT {ttft:,.0f} ms, gap {gap:.0f} ms. "
        f"Without offline work P99 is {ms(alone, 'ttft_p99')} and {ms(alone, 'gap_p99')} ms.\n",
        "| policy | offline tokens/s | setting | P99 TTFT, ms | P99 gap | P99 pace | fairness "
        "| rows late |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, group in by_policy(cells, trace):
        found = averages(group)
        if found is None:
            lines.append(f"| `{name}` | none in time | | | | | | |")
            continue
        lines.append(
            f"| `{name}` | {found['offline']:,.0f} | {setting(group)} | "
            f"{ms(found, 'ttft_p99')} | {ms(found, 'gap_p99')} | {ms(found, 'pace_p99')} | "
            f"{found['jain']:.2f} | {100 * found['late']:.0f} % |"
        )
    return "\n".join(lines) + "\n"


def beside_default(group: list[Cell], defaults: list[Cell]) -> list[float]:
    """By how many percent offline tokens are more than the default's, seed by seed."""
    own = {cell["seed"]: cell["figures"]["offline"] for cell in defaults}
    return [100.0 * (c["figures"]["offline"] / own[c["seed"]] - 1.0) for c in group]


def seeds_table(cells: list[Cell]) -> str:
    """Means and ranges over seeds, and what a policy has more than the default on the same seed."""
    lines = [
        "| trace | policy | offline tokens/s (least to most) | beside the default (least to most) "
        "| setting (tokens of a step) |",
        "|---|---|---|---|---|",
    ]
    for trace in dict.fromkeys(cell["trace"] for cell in cells):
        groups = dict(by_policy(cells, trace))
        for name, group in groups.items():
            found = averages(group)
            if found is None:
                lines.append(f"| {trace} | `{name}` | none in time | | |")
                continue
            rates = [cell["figures"]["offline"] for cell in group]
            more = beside_default(group, groups[DEFAULT])
            beside = f"{mean(more):+.1f} % ({min(more):+.1f} to {max(more):+.1f})"
            lines.append(
                f"| {trace} | `{name}` | {found['offline']:,.0f} ({min(rates):,.0f} to "
                f"{max(rates):,.0f}) | {'' if name == DEFAULT else beside} | "
                f"{setting(group, steps=True)} |"
            )
    return "\n".join(lines) + "\n"


def plot(cells: list[Cell]) -> str:
    """Offline tokens a second, a bar a policy, trace under trace."""
    most = max((averages([c]) or {"offline": 0.0})["offline"] for c in cells)
    parts: list[str] = []
    y = 10
    for trace in dict.fromkeys(cell["trace"] for cell in cells):
        y += BAR + 6
        parts.append(f'<text x="10" y="{y - 4}" font-weight="bold">{escape(trace)}</text>')
        for name, group in by_policy(cells, trace):
            offline = (averages(group) or {"offline": 0.0})["offline"]
            length = offline / most * (WIDTH - LEFT - 90)
            colour = "#1f77b4" if name.startswith("conserve_v2") else "#9db4c8"
            said = f"{offline:,.0f}" if offline else "misses the targets"
            parts += [
                f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{escape(name)}</text>',
                f'<rect x="{LEFT}" y="{y + 2}" width="{length:.0f}" height="{BAR - 4}" '
                f'fill="{colour}"/>',
                f'<text x="{LEFT + length + 6:.0f}" y="{y + 12}">{said}</text>',
            ]
            y += BAR
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 12}" '
        'font-family="sans-serif" font-size="11">'
    )
    return "\n".join(
        [head, f'<rect width="{WIDTH}" height="{y + 12}" fill="white"/>', *parts, "</svg>", ""]
    )


def main() -> None:
    """Write both."""
    cells: list[Cell] = json.loads(OUT.read_text())
    traces = dict.fromkeys(cell["trace"] for cell in cells)
    made = "\n".join(table(cells, trace) for trace in traces)
    text = between(PAGE.read_text(), BEGIN, END, made)
    seeds: list[Cell] = json.loads(SEED_RESULTS.read_text())
    PAGE.write_text(between(text, BEGIN_SEEDS, END_SEEDS, seeds_table(seeds)))
    PLOT.write_text(plot(cells))
    print(f"{PAGE.name}: {len(traces)} traces on {DEVICE}")


if __name__ == "__main__":
    main()
