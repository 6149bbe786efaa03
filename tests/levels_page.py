"""Tables of docs/levels.md and README.md, of the code: `python -m tests.levels_page [--write]`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from coserve.setup.engine_env import known_sglangs
from engine_adapter.coserving_levels import FULL_LEVEL, LIMITS
from tests.engine.families import FAMILIES, Family

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "docs" / "levels.md", ROOT / "README.md")

MEANING = {
    3: "steps are sized by latency, offline requests leave a running step, their KV is kept",
    2: "the same, but they leave only steps without chat, or compute their KV again",
    1: "steps are sized by latency, and none stops inside",
    0: "rows enter as chat leaves room",
}
"""Level -> what an engine does at it, in a line."""


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
        (one.form, _levels(one), ", ".join(one.scenarios).replace("_", " ")) for one in ordered
    ]
    return table(("form", "level", "scenarios"), lines)


def _levels(family: Family) -> str:
    """The level of a family, and of older releases of SGLang where it is less."""
    return ", ".join(
        [str(family.level), *(f"on {name}: {level}" for name, level in family.lower.items())]
    )


def _tried_at(level: int) -> Iterator[str]:
    """Names of families at a level; with the release of SGLang where that is an older one's."""
    for family in FAMILIES.values():
        name = family.form.partition(":")[0]
        if family.level == level:
            yield name
        yield from (f"{name} on SGLang {one}" for one, its in family.lower.items() if its == level)


def engines() -> str:
    """What runs at which level, for who asks whether their own does."""
    lines = []
    for level, meaning in MEANING.items():
        tried = list(_tried_at(level))
        forms = [one.form for one in LIMITS.values() if one.level == level]
        if level == FULL_LEVEL:
            tried.insert(0, f"SGLang {' and '.join(known_sglangs(ROOT))}")
        if not level:
            forms.append("[Any other OpenAI-compatible server](docs/other-engines.md), as vLLM")
        lines.append(
            (
                f"{level}: {meaning}",
                ", ".join(tried),
                " ".join(f"{form[0].upper()}{form[1:]}." for form in forms),
            )
        )
    refused = "another release of SGLang with our plugin, pipeline parallelism, disaggregation"
    lines.append(("refused at start", "", refused))
    return table(("level", "engine and models that were tried", "what else has it"), lines)


def page(text: str) -> str:
    """A page with its tables as they are now."""
    made = {"limits": limits, "families": families, "engines": engines}
    for name in re.findall(r"<!-- end of (\w+) -->", text):
        between = re.compile(rf"(<!-- {name}: .*? -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        found = between.search(text)
        assert found is not None, name
        text = text.replace(found[0], found[1] + made[name]() + found[2])
    return text


if __name__ == "__main__":
    stale = [one for one in PAGES if page(one.read_text()) != one.read_text()]
    for one in stale if "--write" in sys.argv else ():
        one.write_text(page(one.read_text()))
    sys.exit(0 if "--write" in sys.argv or not stale else 1)
