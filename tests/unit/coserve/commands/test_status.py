"""How `coserve status` and `top` begin: with the verdict, as the gateway tells it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from coserve import cli
from coserve.checkup.service import issues
from coserve.commands import status as command
from coserve.commands.top import drawn
from gateway.verdict.facts import LOOK_BACKS, Engine, Facts, Kept, LookBack
from gateway.verdict.judge import judge


def seen(facts: Facts | None) -> dict[str, Any]:
    """One look at a stack whose gateway judges these facts; without, it does not answer."""
    verdict = None if facts is None else judge(facts)
    return {
        "pid": 1, "version": "1", "home": "/h", "parts": [], "models": [], "behind": {},
        "versions": {"python": "3", "schema": None, "engines": []},
        "urls": {"api": None, "dashboard": None, "metrics": None},
        "profile": None, "queue": None, "online": None, "tokens_per_s": None, "memory": None,
        "batches": [],
        "status": None if verdict is None else "degraded" if verdict.degraded else "ok",
        "verdict": None if verdict is None else verdict.unnamed(),
    }  # fmt: skip


WELL = Facts(engines=[Engine("a", "m")], look_backs=[LookBack(n) for n in LOOK_BACKS], batches=[])
LATE = Facts(
    engines=[Engine("a", "m")],
    look_backs=[LookBack(n, {"tbt:online": Kept(33, 67, 100)}) for n in LOOK_BACKS],
    batches=[],
)


@pytest.mark.parametrize(
    ("facts", "first", "code"),
    [
        (WELL, "CHAT     No chat in the last hour.", 0),
        (LATE, "CHAT     Chat is late: gaps between tokens 33 %", command.DEGRADED),
        (None, "DEGRADED  the gateway does not answer", command.DEGRADED),
    ],
)
def test_the_verdict_comes_first_and_decides_the_exit_status(
    facts: Facts | None,
    first: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command, "current_state", lambda: seen(facts))
    for json in (False, True):
        ended = 0
        try:
            command.status(json=json)
        except typer.Exit as told:
            ended = told.exit_code
        assert ended == code
        said = capsys.readouterr().out
        assert json or said.startswith(first), said


def test_top_and_doctor_say_the_same() -> None:
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(drawn(seen(LATE)))
    shown = console.export_text()
    verdict = judge(LATE)
    assert verdict.chat.says in shown
    (found,) = issues(verdict.unnamed())
    assert (found.state, found.found) == ("bad", verdict.issues[0].what)
    assert verdict.issues[0].what in shown


def test_from_another_folder_it_says_where_it_looked(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli.app, ["status"], env={"COSERVE_HOME": str(tmp_path / "none")})
    assert result.exit_code == 3
    assert f"looked in {tmp_path / 'none'}" in result.stdout
    assert "COSERVE_HOME" in result.stdout.replace("\n", "")
