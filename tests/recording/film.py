"""Screens of terminals over time, as one SVG that plays by itself: CSS alone, no script.

All frames stand below each other, and the window moves from one to the next. A line that several
frames have is drawn once and used again, so that a minute of two terminals is some 100 KB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

import pyte

CELL_WIDTH, CELL_HEIGHT = 8.0, 18
MARGIN: Final = 12
LAST_FRAME_S: Final = 4.0
"""How long the end stands before it begins again."""

COLOURS: Final = {
    "default": "#d1d9e0", "black": "#59636e", "red": "#ff8182", "green": "#56d364",
    "brown": "#e3b341", "yellow": "#e3b341", "blue": "#6cb6ff", "magenta": "#d2a8ff",
    "cyan": "#76e3ea", "white": "#f0f6fc",
}  # fmt: skip

Line = tuple[tuple[str, str, bool], ...]
"""Runs of equal style: text, colour, bold."""


@dataclass(frozen=True)
class Frame:
    """What all terminals showed from an instant on."""

    at_s: float
    lines: tuple[Line, ...]


def lines_of(screen: pyte.Screen) -> tuple[Line, ...]:
    """The lines of a terminal, without what trails."""
    return tuple(_line(screen, row) for row in range(screen.lines))


def _line(screen: pyte.Screen, row: int) -> Line:
    runs: list[tuple[str, str, bool]] = []
    for column in range(screen.columns):
        cell = screen.buffer[row][column]
        style = (_colour(cell.fg), cell.bold)
        if runs and runs[-1][1:] == style:
            runs[-1] = (runs[-1][0] + cell.data, *style)
        else:
            runs.append((cell.data, *style))
    while runs and not runs[-1][0].strip():
        runs.pop()
    if runs:
        runs[-1] = (runs[-1][0].rstrip(), *runs[-1][1:])
    return tuple(runs)


def _colour(name: str) -> str:
    if name.removeprefix("bright") in COLOURS:
        return COLOURS[name.removeprefix("bright")]
    return f"#{name}" if len(name) == 6 else COLOURS["default"]


def distinct(frames: Sequence[Frame]) -> list[Frame]:
    """Without frames that show what the one before shows."""
    kept: list[Frame] = []
    for frame in frames:
        if not kept or kept[-1].lines != frame.lines:
            kept.append(frame)
    return kept


def svg(frames: Sequence[Frame], columns: int, title: str) -> str:
    """The film.

    Args:
        frames: In order, the first at 0 s; all with as many lines.
        columns: Of the terminals.
        title: What a reader who cannot see it is told.
    """
    num_lines = len(frames[0].lines)
    width = round(columns * CELL_WIDTH) + 2 * MARGIN
    height = num_lines * CELL_HEIGHT + 2 * MARGIN
    whole_s = frames[-1].at_s + LAST_FRAME_S
    names: dict[Line, str] = {}
    uses, moves = [], []
    for number, frame in enumerate(frames):
        for row, line in enumerate(frame.lines):
            if line:
                name = names.setdefault(line, f"l{len(names)}")
                y = number * height + row * CELL_HEIGHT
                uses.append(f'<use href="#{name}" y="{y}"/>')
        moves.append(
            f"{100 * frame.at_s / whole_s:.3f}%{{transform:translateY(-{number * height}px)}}"
        )
    last = f"transform: translateY(-{(len(frames) - 1) * height}px)"
    inner = f'width="{width - 2 * MARGIN}" height="{height - 2 * MARGIN}" overflow="hidden"'
    drawn = "\n".join(f'<g id="{name}">{_text(line)}</g>' for line, name in names.items())
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"
 font-family="ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace" font-size="13">
<title>{escape(title)}</title>
<style>
@keyframes film {{ {" ".join(moves)} 100%{{{last}}} }}
#film {{ animation: film {whole_s:.1f}s steps(1, end) infinite; }}
text {{ white-space: pre; }}
@media (prefers-reduced-motion: reduce) {{
  #film {{ animation: none; {last}; }}
}}
</style>
<defs>
{drawn}
</defs>
<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>
<svg x="{MARGIN}" y="{MARGIN}" {inner}>
<g id="film">
{"".join(uses)}
</g>
</svg>
</svg>
"""


def _text(line: Line) -> str:
    """One line; each run stands where its first cell is, whatever the reader's font."""
    parts, column = [], 0
    for text, colour, bold in line:
        if text.strip():
            weight = ' font-weight="bold"' if bold else ""
            length = f' textLength="{len(text) * CELL_WIDTH:.0f}"' if len(text) > 1 else ""
            parts.append(
                f'<text x="{column * CELL_WIDTH:.0f}" y="14" fill="{colour}"{weight}{length}'
                f">{escape(text, quote=False)}</text>"
            )
        column += len(text)
    return "".join(parts)
