"""Commands of the pages for operators: each is one that `coserve` takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from coserve.cli import app

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    page for part in ("operations", "deploy") for page in (ROOT / "docs" / part).rglob("*.md")
)
COMMAND = re.compile(r"(?<![\w/.-])(?:\S*\.venv/bin/)?coserve +([a-z][^#&|`\n]*)")
STANDS_FOR = {"N": "5", "URL": "http://engine:30000"}


def commands(page: Path) -> Iterator[str]:
    """What stands in blocks of code and between backticks, without the name of the program."""
    text = page.read_text().replace("\\\n", " ")
    code = re.findall(r"^```\w*\n(.*?)^```$|`([^`\n]+)`", text, re.DOTALL | re.MULTILINE)
    for block, inline in code:
        yield from (found[1].strip() for found in COMMAND.finditer(block or inline))


EVERY = [(page.stem, command) for page in PAGES for command in commands(page)]


def test_the_pages_have_commands() -> None:
    assert len(EVERY) > 40
    assert {"backup", "upgrade", "capacity", "host"} <= {page for page, _ in EVERY}


@pytest.mark.parametrize(("page", "command"), EVERY)
def test_a_command_is_one_that_there_is(page: str, command: str, tmp_path: Path) -> None:
    del page
    file = tmp_path / "file"
    file.touch()
    words = [STANDS_FOR.get(word, word) for word in shlex.split(command)]
    words = [str(file) if word == "FILE" or word.startswith("/mnt/") else word for word in words]
    verb: Any = typer.main.get_command(app)
    while words and hasattr(verb, "commands"):
        assert words[0] in verb.commands, command
        verb = verb.commands[words.pop(0)]
    if words:  # else it is a verb that a sentence names
        with verb.make_context(verb.name, words):
            pass


def test_the_simulation_of_capacity_planning_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from lab.simulator.__main__ import main

    (command,) = {one for page, one in EVERY if page == "capacity" and one.startswith("simulate")}
    short = ["--duration", "3", "--lead", "1", "--outstanding", "40", "--out", str(tmp_path)]
    assert main([*shlex.split(command)[1:], *short]) == 0
    told = capsys.readouterr().out
    assert "online-only" in told
    assert "conserve-v2" in told
