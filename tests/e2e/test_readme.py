"""README.md is executed, block by block and as pasted, against the live stack."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.pasted import paste

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)
# Not run: what makes the reader's own environment. This test's has the same client.
ENVIRONMENT = "python3 -m venv client && client/bin/pip install --quiet openai\nclient/bin/python\n"


def _blocks(stack: Any) -> list[tuple[str, str]]:
    text = (ROOT / "README.md").read_text()
    return [
        (kind, code.replace("http://127.0.0.1:8080", stack.root_url))
        for kind, code in BLOCK.findall(text)
    ]


@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_the_readme_does_what_it_says(
    stack: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    (tmp_path / ".coserve").symlink_to(stack.home)
    env = {**os.environ, "COSERVE_BASE_URL": stack.base_url}
    blocks = _blocks(stack)
    assert [kind for kind, _ in blocks].count("python") == 2
    assert ("bash", ENVIRONMENT) in blocks
    names: dict[str, Any] = {}
    said: list[str] = []
    for kind, code in blocks:
        if kind == "python":
            paste(code, names, "README.md")
        elif code != ENVIRONMENT:
            argv = ["bash", "-euo", "pipefail", "-c", code]
            done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=240)
            assert done.returncode == 0, done.stderr + done.stdout
            said.append(done.stdout)
    names["client"].close()
    printed = capsys.readouterr().out
    assert "Paris" in said[0]  # a chat
    assert "completed" in said[1]  # the command line
    assert "Paris" in printed.splitlines()[0]  # the SDK's stream
    assert names["batch"].status == "completed"
    for country in ("France", "Italy", "Japan", "Kenya"):
        assert f'"custom_id":"{country}"' in printed.replace('": "', '":"')
