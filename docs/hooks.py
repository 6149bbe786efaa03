"""What the site adds to `docs/`: the pages above it, the results they link to, and search order.

Pages are written for the repository, where a link is a path between files. A link that leaves
`docs/` leads to a copy in the site; one that leads nowhere is left, and ends a strict build.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
RULES = ROOT / "ops" / "prometheus" / "coserve.rules.yml"
_METRIC = re.compile(r"\b(coserve_[a-z_]+?)(?:_total)?\b(?!:)")
_LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")
_OWN_PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
_RENAMED = {"README.md": "about.md"}
_COMPATIBILITY = "compatibility.md"

BOOSTS = {"Start": 2.0, "Use it": 8.0, "Run it": 4.0, "Proof": 0.5, "Inside": 0.5, "Research": 0.2}
"""Tab -> how much a page of it counts in the site's search: guides come before what is inside."""

BEHIND = 0.05
"""The same of pages in no tab: decisions, areas of compatibility."""

BOOSTS_OF_PAGES = {
    "tutorial.md": 2.0,
    "api.md": 16.0,
    "simulate.md": 0.5,
    _COMPATIBILITY: BEHIND,
    "CHANGELOG.md": BEHIND,
}
"""Pages that count more or less than their tab's."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is not under `docs/`."""
    for name in _OWN_PAGES:
        files.append(File.generated(config, _in_site(name), abs_src_path=str(ROOT / name)))
    linked = {name for page in _sources() for name in _outside(page)}
    for name in sorted(linked - set(_OWN_PAGES)):
        if (ROOT / name).is_file():
            files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    for name, text in areas((ROOT / "docs" / _COMPATIBILITY).read_text()).items():
        if (whole := files.get_file_from_path(name)) is not None:
            files.remove(whole)
        files.append(File.generated(config, name, content=text))
    return files


def areas(page: str) -> dict[str, str]:
    """The page of compatibility as one page per area, and an index of them with their counts."""
    head, *sections = re.split(r"^## ", page, flags=re.MULTILINE)
    pages, rows = {}, ["| area | rows | pass |", "| --- | ---: | ---: |"]
    for section in sections:
        title, _, body = section.partition("\n")
        slug = "-".join(re.findall(r"[a-z0-9]+", title.lower()))
        statuses = re.findall(r"^\| [A-Z]-\d\d \| [^|]* \| ([^|]*) \|", body, re.MULTILINE)
        rows.append(
            f"| [{title}](compatibility/{slug}.md) | {len(statuses)} | {statuses.count('pass')} |"
        )
        body = re.sub(r"\]\((?![a-z]+:)", "](../", body)
        pages[f"compatibility/{slug}.md"] = f"# Compatibility: {title}\n{body}"
    pages[_COMPATIBILITY] = head + "\n".join(rows) + "\n"
    return pages


def on_page_markdown(markdown: str, page: Page, **given: Any) -> str:
    """Lead links between files of the repository to their pages of the site.

    Results of benchmarks are left out of the site's search.
    """
    del given
    where = page.file.src_uri
    tab = str([*page.ancestors][-1].title) if page.ancestors else ""
    boost = BOOSTS_OF_PAGES.get(where, BOOSTS.get(tab, BEHIND))
    excluded = where.startswith("bench/")
    page.meta["search"] = {"exclude": True} if excluded else {"boost": boost}
    source = next((name for name in _OWN_PAGES if _in_site(name) == where), f"docs/{where}")
    if where.startswith("bench/"):
        source = where

    if where == "metrics.md":
        head, mark, rest = markdown.partition("## Of the gateway")
        markdown = head + alerted(RULES.read_text()) + mark + rest

    def moved(found: re.Match[str]) -> str:
        target = _in_repository(source, found[2])
        if not (ROOT / target).exists():
            return found[0]
        path = os.path.relpath(_in_site(target), Path(where).parent)
        return f"{found[1]}{path}{found[3] or ''}{found[4]}"

    return _LINK.sub(moved, markdown)


def alerted(rules: str) -> str:
    """The metrics that alerts use, most used first, as a section of the page of metrics.

    Args:
        rules: The file of alerts and recorded expressions.
    """
    groups = yaml.safe_load(rules)["groups"]
    given = [rule for group in groups for rule in group["rules"]]
    recorded = {
        rule["record"]: set(_METRIC.findall(rule["expr"])) for rule in given if "record" in rule
    }
    used: dict[str, list[str]] = {}
    for rule in given:
        if "alert" not in rule:
            continue
        names = set(_METRIC.findall(rule["expr"]))
        names |= {name for word, of in recorded.items() if word in rule["expr"] for name in of}
        for name in sorted(names - recorded.keys()):
            used.setdefault(name, []).append(rule["alert"])
    lines = ["## What alerts use", "", "| metric | alerts |", "| --- | --- |"]
    for name, alerts in sorted(used.items(), key=lambda one: (-len(one[1]), one[0])):
        linked = ", ".join(f"[{one}](operations/runbook/{one}.md)" for one in alerts)
        lines.append(f"| `{name}` | {linked} |")
    return "\n".join([*lines, "", ""])


def _in_repository(source: str, link: str) -> str:
    return os.path.normpath(Path(source).parent / link)


def _in_site(name: str) -> str:
    """Where a file of the repository is in the site."""
    return _RENAMED.get(name) or name.removeprefix("docs/")


def _sources() -> list[Path]:
    return [*(ROOT / name for name in _OWN_PAGES), *(ROOT / "docs").rglob("*.md")]


def _outside(page: Path) -> set[str]:
    """Files outside of `docs/` that a page links to."""
    source = page.relative_to(ROOT).as_posix()
    names = {_in_repository(source, found[2]) for found in _LINK.finditer(page.read_text())}
    return {name for name in names if not name.startswith("docs/")}
