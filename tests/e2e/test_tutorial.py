"""docs/tutorial.md is executed, block by block, against the live stack."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.pasted import paste

ROOT = Path(__file__).parents[2]


def _python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs/tutorial.md").read_text(), re.DOTALL)


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_the_tutorial_does_what_it_says(
    stack: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COSERVE_BASE_URL", stack.base_url)
    monkeypatch.setenv("COSERVE_API_KEY", stack.api_key)
    blocks = _python_blocks()
    assert len(blocks) >= 10
    names: dict[str, Any] = {}
    for block in blocks:
        paste(block, names, "docs/tutorial.md")
    names["client"].close()
    printed = capsys.readouterr().out
    assert "Paris" in names["answer"]
    assert names["batch"].status == "completed"
    assert names["many"].status == "completed"
    assert names["many"].request_counts.completed == 150
    assert names["broken"].request_counts.completed == 60
    harvested = [int(one) for one in re.findall(r"rows harvested meanwhile: (\d+)", printed)]
    # Beside chat as many as the machine's speed leaves, which may be none; paused none.
    assert len(harvested) == 2
    assert harvested[1] == 0
    assert re.search(r"in_progress: \d+ of 150 rows", printed)
    for custom_id in names["questions"]:
        assert f"{custom_id} -> " in printed
