"""The README's main result: its tables and its picture, from committed files of results.

    python -m bench.coserve_bench.main_result

rewrites the tables between the marks in README.md, and `docs/images/main-result.svg`. A test holds
them equal to what this prints. Both come from `coserve bench coserve`: on a GPU that is emulated
(docs/emulated-device.md), and on a CPU (docs/benchmark-coserve.md).
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.paths import ROOT
from engine_adapter.scheduling.policies.settings import Level

EMULATED = ROOT / "bench/results/coserve/emulated-a100.json"
MEASURED = ROOT / "bench/results/coserve/cpu-p99-gamma.json"
PICTURE = ROOT / "docs/images/main-result.svg"
README = ROOT / "README.md"
MARKS = re.compile(r"(<!-- (main|measured) result -->\n).*?(<!-- end of \2 result -->)", re.DOTALL)

# As the results name them, as the README does, and the colour.
SYSTEMS = (
    ("online-only", "chat alone", "#7d8590"),
    ("conserve-v2", "coserve", "#1a7f5a"),
    ("sglang-priority", "SGLang, priorities", "#c4701b"),
    ("non-preemptive", "SGLang, no preemption", "#b0413e"),
)

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 940, 400, 76, 110, 56, 58
"""Of the picture and of its plot's margins, in pixels."""


@dataclass(frozen=True)
class Figures:
    """One system's line: milliseconds and tokens per second, and the row's name and colour."""

    name: str
    colour: str
    ttft_p50_ms: float
    ttft_p90_ms: float
    tbt_p90_ms: float
    harvested_per_s: float
    in_time: float
    num_requests: int


def read(path: Path) -> list[Figures]:
    """The systems of a result, in the README's order; ours at its default level."""
    systems: dict[str, Any] = json.loads(path.read_text())["systems"]
    return [
        Figures(
            name,
            colour,
            found["ttft_ms"]["p50"],
            found["ttft_ms"]["p90"],
            found["tbt_ms"]["p90"],
            found["offline_tokens_per_s"],
            found["attainment"]["1.25"]["ttft"],
            found["n"],
        )
        for key, name, colour in SYSTEMS
        for found in (systems[one] for one in systems if _system(one) == key)
    ]


def _system(name: str) -> str:
    """Without stock's settings, or ours where it is the default level."""
    return name.partition("@")[0].removesuffix(f":{Level.BALANCED.value}")


def table(figures: list[Figures]) -> str:
    """The README's table in Markdown."""
    lines = [
        "| | first token, P50 | first token, P90 | between tokens, P90 "
        "| first tokens in time | batch tokens per second |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for one in figures:
        cells = [
            one.name,
            f"{one.ttft_p50_ms:,.0f} ms",
            f"{one.ttft_p90_ms:,.0f} ms",
            f"{one.tbt_p90_ms:,.0f} ms",
            f"{one.in_time:.0%}",
            f"{one.harvested_per_s:,.0f}",
        ]
        if one.name == "coserve":
            cells = [f"**{cell}**" for cell in cells]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def picture(figures: list[Figures]) -> str:
    """A point per system, as SVG: batch tokens a second to the right, chat in time upwards."""
    tick = _tick(max(one.harvested_per_s for one in figures))
    most = tick * math.ceil(max(one.harvested_per_s for one in figures) / tick)
    across, up = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="system-ui, sans-serif" font-size="14">',
        "<title>Share of chat in time over batch tokens per second, of four systems</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff"/>',
        f'<text x="{LEFT - 52}" y="30" font-weight="bold" fill="#1f2328">'
        "first tokens of chat in time</text>",
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 14}" text-anchor="end" font-weight="bold" '
        'fill="#1f2328">batch tokens per second</text>',
    ]
    for percent in range(0, 101, 25):
        y = TOP + up * (1 - percent / 100)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#d1d9e0"/>'
            f'<text x="{LEFT - 10}" y="{y + 5:.1f}" text-anchor="end" fill="#59636e">'
            f"{percent}%</text>"
        )
    for value in range(0, most + 1, tick):
        x = LEFT + across * value / most
        parts.append(
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 22}" text-anchor="middle" fill="#59636e">'
            f"{value:,}</text>"
        )
    for one in figures:
        x, y = LEFT + across * one.harvested_per_s / most, TOP + up * (1 - one.in_time)
        ours = one.name == "coserve"
        # A label stays inside: right of a point in the left half, below ours, left of the others.
        anchor, dx, dy = ("middle", 0, 34) if ours else ("end", -16, 0)
        if one.harvested_per_s < most / 2:
            anchor, dx, dy = "start", 14, 26
        weight = "bold" if ours else "normal"
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{11 if ours else 8}" fill="{one.colour}"/>'
            f'<g text-anchor="{anchor}" paint-order="stroke" stroke="#ffffff" stroke-width="5">'
            f'<text x="{x + dx:.1f}" y="{y + dy:.1f}" fill="#1f2328" font-weight="{weight}">'
            f'{one.name}</text><text x="{x + dx:.1f}" y="{y + dy + 18:.1f}" fill="#59636e">'
            f"{one.in_time:.0%} in time, {one.harvested_per_s:,.0f} tokens/s</text></g>"
        )
    return "\n".join([*parts, "</svg>", ""])


def _tick(largest: float) -> int:
    """A round step of which the largest value takes five at most."""
    power = int(10 ** max(0, int(math.log10(largest)) - 1))
    steps = (step * power for step in (1, 2, 5, 10, 20))
    return next(step for step in steps if largest <= 5 * step)


def with_tables(readme: str) -> str:
    """The README's text with the tables between their marks made anew."""
    tables = {"main": table(read(EMULATED)), "measured": table(read(MEASURED))}
    return MARKS.sub(lambda found: f"{found[1]}{tables[found[2]]}{found[3]}", readme)


def main() -> None:
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture(read(EMULATED)))
    README.write_text(with_tables(README.read_text()))


if __name__ == "__main__":
    main()
