"""Codex CLI does a job with a command of the shell, goes on from it, and answers in a form."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

CODEX: Final = Path(os.environ["CONFORMANCE_TOOLS"]) / "node_modules" / ".bin" / "codex"
JOB: Final = 'Do the job. fake:call=exec_command fake:arguments={"cmd":"sh_job.sh"}'
CONFIG: Final = f"""
model = "{os.environ["CONFORMANCE_GPU"]}"
model_provider = "coserve"
[model_providers.coserve]
name = "coserve"
base_url = "{os.environ["CONFORMANCE_URL"]}/v1"
env_key = "CONFORMANCE_KEY"
wire_api = "responses"
"""


@pytest.fixture
def codex(tmp_path: Path) -> Any:
    """Runs `codex exec` in a folder of its own; what it said, event by event."""
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    (home / "config.toml").write_text(CONFIG)

    def exec_(answer: str, *argv: str, job: str = JOB) -> list[dict[str, Any]]:
        (work / "job.sh").write_text(f"echo one >> made\necho 'fake:text={answer}'\n")
        # The sandbox needs rights of the host that a container seldom gives; it is not ours.
        options = ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        done = subprocess.run(
            [CODEX, "exec", *options, *argv, job],
            cwd=work,
            env={**os.environ, "CODEX_HOME": str(home), "HOME": str(home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    exec_.work = work  # type: ignore[attr-defined]
    return exec_


def _items(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    return [item for item in items if item["type"] == kind]


def test_a_job_and_one_that_goes_on_from_it(codex: Any) -> None:
    events = codex("All_is_done.")
    (command,) = _items(events, "command_execution")
    assert command["exit_code"] == 0
    assert _items(events, "agent_message")[-1]["text"] == "All is done."
    assert events[-1]["usage"]["output_tokens"] > 0
    again = codex("", "resume", "--last", job="What now? fake:text=Nothing_more.")
    assert _items(again, "agent_message")[-1]["text"] == "Nothing more."
    assert (codex.work / "made").read_text() == "one\n"


def test_a_job_whose_answer_has_a_form(codex: Any, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(
        json.dumps(
            {
                "type": "object",
                "properties": {"done": {"type": "boolean"}},
                "required": ["done"],
                "additionalProperties": False,
            }
        )
    )
    events = codex('{"done":true}', "--output-schema", str(schema))
    assert _items(events, "command_execution")
    assert json.loads(_items(events, "agent_message")[-1]["text"]) == {"done": True}
