"""docs/tutorial.md is executed, block by block, against the live stack."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.pasted import paste

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(python)?\n(.*?)^```", re.DOTALL | re.MULTILINE)


def _blocks() -> list[tuple[str, str]]:
    """The Python of the page, and what its third terminal kills."""
    found = BLOCK.findall((ROOT / "docs/tutorial.md").read_text())
    return [(kind, code) for kind, code in found if kind == "python" or code.startswith("kill ")]


def _typed(command: str, home: Path) -> None:
    """A line of the third terminal, in the folder of the checkout."""
    env = {**os.environ, "COSERVE_HOME": str(home)}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr + done.stdout


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_the_tutorial_does_what_it_says(
    stack: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COSERVE_BASE_URL", stack.base_url)
    monkeypatch.setenv("COSERVE_API_KEY", stack.api_key)
    blocks = _blocks()
    assert [kind for kind, _ in blocks].count("python") >= 10
    assert [kind for kind, _ in blocks].count("") == 1
    names: dict[str, Any] = {}
    for kind, code in blocks:
        if kind == "python":
            paste(code, names, "docs/tutorial.md")
        else:
            _typed(code, stack.home)
    names["client"].close()
    printed = capsys.readouterr().out
    assert "Paris" in names["answer"]
    assert names["batch"].status == "completed"
    assert names["many"].status == "completed"
    assert names["many"].request_counts.completed == 200
    before = re.search(r"answered before: (\d+)", printed)
    assert before is not None
    assert int(before[1]) < 200, "there was nothing to lose"
    assert "The engine ended (exit code 137)" in (stack.home / "up.out").read_text()
    harvested = [int(one) for one in re.findall(r"rows harvested meanwhile: (\d+)", printed)]
    # Beside chat as many as the machine's speed leaves, which may be none; paused none.
    assert len(harvested) == 2
    assert harvested[1] == 0
    assert re.search(r"in_progress: \d+ of 200 rows", printed)
    for custom_id in names["questions"]:
        assert f"{custom_id} -> " in printed
