"""The README's main result: its tables and its picture, from committed files of results.

    python -m bench.coserve_bench.main_result

rewrites the tables between the marks in README.md, and `docs/images/main-result.svg`. A test holds
them equal to what this prints. Both come from `coserve bench coserve`: on a GPU that is emulated
(docs/emulated-device.md), and on a CPU (docs/benchmark-coserve.md).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
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

WIDTH, HEIGHT, TOP, ROW, LABELS, PANEL, GAP = 940, 200, 58, 32, 180, 215, 36


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
    """The systems of a result, in the README's order; `sglang-priority` at whichever setting."""
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
        for found in (systems[one] for one in systems if one.partition("@")[0] == key)
    ]


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
    """Three panels of bars, one bar per system, as SVG."""
    panels = (
        ("first token, P90 in ms", "lower is better", [one.ttft_p90_ms for one in figures]),
        ("between tokens, P90 in ms", "lower is better", [one.tbt_p90_ms for one in figures]),
        ("batch tokens per second", "higher is better", [one.harvested_per_s for one in figures]),
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="system-ui, sans-serif" font-size="13">',
        "<title>Chat latency and harvested batch tokens of four systems</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff"/>',
    ]
    for index, one in enumerate(figures):
        weight = "bold" if one.name == "coserve" else "normal"
        y = TOP + index * ROW + 16
        parts.append(
            f'<text x="{LABELS - 10}" y="{y}" text-anchor="end" fill="#1f2328" '
            f'font-weight="{weight}">{one.name}</text>'
        )
    for number, (title, better, values) in enumerate(panels):
        left = LABELS + number * (PANEL + GAP)
        parts.append(
            f'<text x="{left}" y="24" font-weight="bold" fill="#1f2328">{title}</text>'
            f'<text x="{left}" y="42" fill="#59636e">{better}</text>'
        )
        scale = (PANEL - 50) / max(values)
        for index, (one, value) in enumerate(zip(figures, values, strict=True)):
            y, width = TOP + index * ROW, value * scale
            parts.append(
                f'<rect x="{left}" y="{y}" width="{max(width, 1):.1f}" height="22" rx="3" '
                f'fill="{one.colour}"/>'
                f'<text x="{left + width + 6:.1f}" y="{y + 16}" fill="#1f2328">{value:,.0f}</text>'
            )
    return "\n".join([*parts, "</svg>", ""])


def with_tables(readme: str) -> str:
    """The README's text with the tables between their marks made anew."""
    tables = {"main": table(read(EMULATED)), "measured": table(read(MEASURED))}
    return MARKS.sub(lambda found: f"{found[1]}{tables[found[2]]}{found[3]}", readme)


def main() -> None:
    """Write them."""
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture(read(EMULATED)))
    README.write_text(with_tables(README.read_text()))


if __name__ == "__main__":
    main()
