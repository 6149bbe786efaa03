"""`make bench` runs what its help says; a benchmark says its question, command and reader."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from bench.__main__ import SERVICE, main, questions

ROOT = Path(__file__).parents[3]
QUOTED = re.compile(r"Quoted\sin\s([\w./-]+?)(?:\sand\s([\w./-]+?))?[.,]?\s")


def docstring(name: str) -> str:
    file = ROOT / "bench" / f"{name}.py"
    path = file if file.exists() else ROOT / "bench" / name / "__main__.py"
    return (ast.get_docstring(ast.parse(path.read_text())) or "") + "\n"


def test_what_runs_without_names_is_there_and_in_the_help() -> None:
    assert set(SERVICE) <= set(questions())
    (told,) = re.findall(r"^bench:.*## (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(re.findall(r"\b(?:upload|validation|dispatch|slow clients)\b", told)) == len(SERVICE)


def test_a_name_that_is_none_is_refused_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["uplaod"]) == 2
    assert "upload" in capsys.readouterr().out


def test_names_and_questions_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ", 1)[0] for line in lines] == list(questions())
    assert all(len(line.split()) > 3 for line in lines)


@pytest.mark.parametrize("name", questions())
def test_a_benchmark_says_its_command_and_is_named_where_it_is_quoted(name: str) -> None:
    said = docstring(name)
    assert re.search(rf"bench\.{name}\b|bench/{name}\.py", said)
    if name in SERVICE and "no page quotes it" in said:
        return
    if name == "reproduce":  # it writes its page
        assert "docs/reproduction.md" in said
        return
    pages = [page for found in QUOTED.findall(said) for page in found if page]
    assert pages
    for page in pages:
        assert re.search(rf"bench[./]{name}\b|results/{name}\b", (ROOT / page).read_text()), page
