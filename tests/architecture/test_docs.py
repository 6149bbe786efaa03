"""What a user can set, call, measure or type appears in the documentation."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from coserve.cli import app
from tests.architecture.prose import blocks

ROOT = Path(__file__).parents[2]


def _docs() -> str:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return "\n".join(page.read_text() for page in pages)


def _pages() -> list[Path]:
    folder = ROOT / "docs"
    return [*folder.glob("*.md"), *folder.glob("deploy/*.md")]


def test_every_page_is_linked_from_another() -> None:
    linked = {
        (page.parent / link.partition("#")[0]).resolve()
        for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
        for block in blocks(page)
        for link in block.links
        if not link.startswith("#")
    }
    assert sorted(str(page) for page in _pages() if page not in linked) == []


def test_every_page_is_in_the_sites_navigation() -> None:
    listed = set(
        re.findall(r"^ +- (?:.+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    )
    pages = {str(page.relative_to(ROOT / "docs")) for page in _pages()}
    assert sorted(pages - listed) == [], "add them to `nav` in mkdocs.yml"


def test_every_module_that_a_page_names_is_there() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    theirs = {"conformance.md"}  # names tests of other projects
    named = [
        (page.name, module)
        for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
        if page.name not in theirs
        for module in re.findall(r"`([\w/]+\.py)`", page.read_text())
    ]
    assert len(named) > 50
    assert [
        one for one in named if not any(f"/{at}".endswith(f"/{one[1]}") for at in tracked)
    ] == []


def test_every_make_verb_is_documented() -> None:
    verbs = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    docs = _docs()
    assert verbs
    assert [verb for verb in verbs if f"make {verb}" not in docs] == []


def test_make_help_says_how_long_each_verb_takes() -> None:
    told = re.findall(r"^([a-z-]+):.*?## (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    times = re.compile(r"\b(?:\d+ (?:s|min)|an hour|a few minutes)\b")
    assert len(told) > 20
    # These two say it at the end of a run, by file.
    silent = {verb for verb, words in told if not times.search(words)} - {"test", "test-all"}
    assert silent == {"help"}


def test_every_setting_is_documented() -> None:
    found: set[str] = set()
    for package in ("coserve", "gateway", "batch", "store", "engine_adapter"):
        for source in (ROOT / package).rglob("*.py"):
            found |= set(re.findall(r"\bCOSERVE_[A-Z][A-Z0-9_]*[A-Z0-9]\b", source.read_text()))
    docs = _docs()
    assert found
    assert sorted(name for name in found if name not in docs) == []


def test_every_route_is_documented() -> None:
    from gateway.http.app import create_app
    from gateway.settings import GatewaySettings

    app = create_app(GatewaySettings())
    paths = {path.removeprefix("/v1") for path in app.openapi()["paths"]}
    docs = _docs()
    assert "/chat/completions" in paths
    assert sorted(path for path in paths if path not in docs) == []


def test_every_metric_is_documented() -> None:
    sources = (ROOT / "gateway/observability").glob("*.py")
    names = {
        name for one in sources for name in re.findall(r"\"(coserve_[a-z_]+)\"", one.read_text())
    }
    docs = _docs()
    assert names
    assert sorted(name for name in names if name not in docs) == []


def test_every_policy_is_documented() -> None:
    from lab.policies import registry

    docs = _docs()
    assert registry.NAMES
    assert sorted(name for name in registry.NAMES if name not in docs) == []


@pytest.mark.parametrize("status", ["failed", "expired", "cancelling", "finalizing", "errored"])
def test_every_status_is_documented(status: str) -> None:
    assert f"`{status}`" in _docs()


def test_every_verb_of_the_command_line_is_documented() -> None:
    page = (ROOT / "docs/cli.md").read_text()
    # `coserve key create`, `list`: a word that stands for the noun before it.
    rows = [re.findall(r"`([^`]+)`", line.split(" | ")[0]) for line in page.splitlines()]
    named = {f"{noun[0].rpartition(' ')[0]} {code}" for noun in rows if noun for code in noun}
    verbs = _verbs(typer.main.get_command(app), "coserve")
    assert "coserve batch submit" in verbs
    assert [verb for verb in verbs if verb not in page and verb not in named] == []


def _verbs(command: Any, name: str) -> list[str]:
    """Every verb that can be typed; Typer's groups have their own in `commands`."""
    if not hasattr(command, "commands"):
        return [name]
    return [
        verb for word, one in command.commands.items() for verb in _verbs(one, f"{name} {word}")
    ]


def test_bodies_that_a_page_sends_say_what_they_are() -> None:
    calls = re.findall(r"^curl (?:.*\\\n)*.*$", _docs(), re.MULTILINE)
    sending = [call for call in calls if " -d " in call]
    assert sending
    assert [call for call in sending if "Content-Type: application/json" not in call] == []


def test_what_the_tour_leaves_in_a_checkout_is_none_of_its_files() -> None:
    pages = (ROOT / "README.md").read_text() + (ROOT / "docs/tutorial.md").read_text()
    made = {*re.findall(r"[\w.]+\.jsonl", pages), "requests.output.jsonl", "requests.errors.jsonl"}
    made |= {f"{name}/" for name in re.findall(r"-m venv (\w+)", pages)}
    assert {"client/", "requests.jsonl"} <= made
    asked = ["git", "check-ignore", "--no-index", *sorted(made)]
    ignored = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert set(ignored.split()) == made


def test_the_threat_model_names_tests_that_are_there() -> None:
    text = (ROOT / "docs/security.md").read_text()
    named = {
        ROOT / "tests" / re.sub(r"^security/", "integration/security/", path)
        for path in re.findall(r"`((?:unit|integration|security)/[\w/]+(?:\.py|/))`", text)
    }
    assert len(named) > 20
    assert sorted(str(path) for path in named if not path.exists()) == []


def _decisions() -> dict[str, Path]:
    return {page.name[:4]: page for page in (ROOT / "docs/decisions").glob("[0-9]*.md")}


def test_decisions_have_a_status_and_four_parts_and_stand_in_the_index() -> None:
    index = (ROOT / "docs/decisions/README.md").read_text()
    assert len(_decisions()) >= 5
    for number, page in _decisions().items():
        lines = page.read_text().splitlines()
        assert lines[0].startswith(f"# {number}: ")
        assert f"| [{number}]({page.name}) | {lines[0].removeprefix(f'# {number}: ')} |" in index
        status = re.fullmatch(r"Status: (?:accepted|superseded by (\d{4}))\.", lines[2])
        assert status, f"{page.name} has no status line"
        assert status[1] is None or status[1] in _decisions()
        for part in ("Context", "Decision", "Consequences", "Alternatives"):
            assert f"**{part}.**" in page.read_text(), f"{page.name} lacks {part}"


def test_every_decision_that_is_cited_exists() -> None:
    cited = re.compile(r"[Dd]ecisions?(?:[\s#]+\[?|/)(\d{4})")
    listed = ["git", "ls-files", "*.py", "*.md", "*.yml", "*.mjs", "*.toml", "Makefile"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lost = [
        f"{name}: {found[1]}"
        for name in names.split()
        if (ROOT / name).exists() and not name.startswith("bench/results/")
        for found in cited.finditer((ROOT / name).read_text())
        if found[1] not in _decisions()
    ]
    assert lost == []


def test_decisions_with_figures_name_what_prints_them() -> None:
    """Percentages, microseconds and tables of figures; times in words are mostly settings."""
    figure = re.compile(r"\d ?(?:%|µs)|\d(?: ms)? \|")
    command = re.compile(
        r"(?:make|coserve|python|pytest) [\w.-]|bench/\w+\.py|test_\w+|results/\w+\.json"
    )
    pages = {page.name: page.read_text() for page in (ROOT / "docs/decisions").glob("[0-9]*.md")}
    with_figures = {name: text for name, text in pages.items() if figure.search(text)}
    assert with_figures
    assert [name for name, text in with_figures.items() if not command.search(text)] == []
