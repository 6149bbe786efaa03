"""The tables of docs/levels.md, from the code: `python -m tests.levels_page [--write]`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from engine_adapter.coserving_levels import LIMITS
from tests.engine.families import FAMILIES

PAGE = Path(__file__).parents[1] / "docs" / "levels.md"


def table(head: tuple[str, ...], lines: Iterable[tuple[str, ...]]) -> str:
    """A table of Markdown."""
    cells = [head, tuple("---" for _ in head), *lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def limits() -> str:
    """What limits an engine of ours, by level."""
    ordered = sorted(LIMITS.values(), key=lambda limit: limit.level)
    lines = [(one.form, str(one.level), one.why.replace("{}", "…")) for one in ordered]
    return table(("what", "highest level", "why"), lines)


def families() -> str:
    """Which models went through which scenarios."""
    ordered = sorted(FAMILIES.values(), key=lambda family: -family.level)
    lines = [
        (one.form, str(one.level), ", ".join(one.scenarios).replace("_", " ")) for one in ordered
    ]
    return table(("form", "level", "scenarios"), lines)


def page(text: str) -> str:
    """The page with its tables as they are now."""
    for name, made in (("limits", limits()), ("families", families())):
        between = re.compile(rf"(<!-- {name}: .*? -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        found = between.search(text)
        assert found is not None, name
        text = text.replace(found[0], found[1] + made + found[2])
    return text


if __name__ == "__main__":
    now = PAGE.read_text()
    if "--write" in sys.argv:
        PAGE.write_text(page(now))
    sys.exit(0 if "--write" in sys.argv or page(now) == now else 1)
