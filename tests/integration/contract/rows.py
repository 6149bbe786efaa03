"""Every row of the contract with OpenAI's clients, as `rows.txt` beside this file says it.

Code cites a row by its id ("row T-11"); docs/compatibility.md prints all of them.
"""

from __future__ import annotations

from pathlib import Path

_LINES = Path(__file__).with_name("rows.txt").read_text().splitlines()

SECTIONS: dict[str, str] = dict(line[2:].split(" ", 1) for line in _LINES if line.startswith("# "))

ROWS: dict[str, str] = dict(line.split(" ", 1) for line in _LINES if not line.startswith("# "))

DECIDED_OTHERWISE: dict[str, str] = {
    "C-26": "api.md#chat-and-completions",
}
"""Rows that the product does not follow, and the page that says what it does instead."""
