"""What the site makes of pages: areas of compatibility, metrics of alerts, weights of search."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    """The file that `mkdocs.yml` names; the folder of pages is no package."""
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_row_of_compatibility_is_on_the_page_of_its_area(hooks: ModuleType) -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text()
    pages: dict[str, str] = hooks.areas(page)
    row = re.compile(r"^\| ([A-Z]-\d\d) \|", re.MULTILINE)
    areas = {name: row.findall(text) for name, text in pages.items() if "/" in name}
    assert sorted(one for rows in areas.values() for one in rows) == sorted(row.findall(page))
    assert len(areas) > 8
    index = pages["compatibility.md"]
    assert [name for name in areas if f"({name})" not in index] == []
    assert not row.findall(index)


def test_links_of_an_area_lead_up(hooks: ModuleType) -> None:
    pages = hooks.areas("Head.\n## Files & parts\n\n| F-01 | x | pass: [api](api.md#a) | y |\n")
    assert pages["compatibility/files-parts.md"].startswith("# Compatibility: Files & parts\n")
    assert "[api](../api.md#a)" in pages["compatibility/files-parts.md"]


def test_metrics_that_alerts_use_name_their_alerts(hooks: ModuleType) -> None:
    rules = hooks.RULES.read_text()
    section = hooks.alerted(rules)
    metrics = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.MULTILINE)
    assert len(rows) >= 12
    assert [name for name, _ in rows if f"`{name}`" not in metrics] == []
    named = {one for _, alerts in rows for one in re.findall(r"\[(\w+)\]", alerts)}
    all_alerts = {
        rule["alert"]
        for group in yaml.safe_load(rules)["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    assert all_alerts - named <= {"CoserveGatewayDown"}  # that a scrape fails is no metric of ours


def test_each_tab_has_its_weight_in_the_search(hooks: ModuleType) -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    tabs = re.findall(r"^  - (.+):$", nav, re.MULTILINE)
    assert set(hooks.BOOSTS) == set(tabs)
