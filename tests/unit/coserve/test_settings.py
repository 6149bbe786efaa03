"""Every setting is known by name, and a misspelt one is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coserve.settings import LocalSettings, known_names, unknown_names
from service.renamed_settings import RENAMED

ROOT = Path(__file__).parents[3]


def test_every_name_in_the_code_is_known() -> None:
    found: set[str] = set()
    for package in ("coserve", "gateway", "batch", "store", "engine_adapter"):
        for source in (ROOT / package).rglob("*.py"):
            found |= set(re.findall(r"\bCOSERVE_[A-Z][A-Z0-9_]*[A-Z0-9]\b", source.read_text()))
    assert found - known_names() == set()


def test_every_known_name_is_documented() -> None:
    page = (ROOT / "docs/settings.md").read_text()
    assert sorted(name for name in known_names() if f"`{name}`" not in page) == []


def test_the_page_documents_nothing_else() -> None:
    page = (ROOT / "docs/settings.md").read_text()
    assert set(re.findall(r"`(COSERVE_[A-Z0-9_]+)`", page)) - known_names() == set()


def test_a_misspelt_name_is_refused_with_a_suggestion() -> None:
    environ = {"COSERVE_PROT": "1", "COSERVE_PORT": "2", "HOME": "/", "DATABASE_URL": "x"}
    assert unknown_names(environ, known_names()) == [
        "COSERVE_PROT is not a setting. Did you mean COSERVE_PORT?"
    ]


def test_a_name_like_no_other_points_to_the_page() -> None:
    sentences = unknown_names({"COSERVE_QQQQQQQQQQQQQQQQ": "1"}, known_names())
    assert sentences == [
        "COSERVE_QQQQQQQQQQQQQQQQ is not a setting. docs/settings.md lists them all."
    ]


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_an_old_name_is_answered_with_the_new_one(old: str, new: str) -> None:
    assert new in known_names()
    assert unknown_names({old: "1"}, known_names()) == [f"{old} is now called {new}."]


def test_a_gateway_for_everyone_is_shown_by_an_address_that_works() -> None:
    assert LocalSettings(host="0.0.0.0", port=81).root_url == "http://127.0.0.1:81"
    assert LocalSettings(host="10.0.0.7", port=81).root_url == "http://10.0.0.7:81"
