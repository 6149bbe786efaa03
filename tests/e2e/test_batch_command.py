"""`coserve batch submit --wait` as a user types it, against the whole stack."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.fixtures.stack import ROOT, Stack

QUESTIONS = {"sky": "What colour is the sky?", "two": "What is one plus one?", "sea": "Name a sea."}


def coserve(stack: Stack, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command finds the service by its address and the key in the state directory."""
    env = os.environ | {"COSERVE_HOME": str(stack.home), "COSERVE_BASE_URL": stack.base_url}
    env.pop("COSERVE_API_KEY", None)
    return subprocess.run(
        [str(ROOT / ".venv/bin/coserve"), "batch", *arguments],
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.thorough
def test_submit_wait_and_download(stack: Stack, tmp_path: Path) -> None:
    headers = {"authorization": f"Bearer {stack.api_key}"}
    models = httpx.get(f"{stack.base_url}/models", headers=headers, timeout=30).json()
    model = models["data"][0]["id"]
    path = tmp_path / "questions.jsonl"
    lines = [
        {
            "custom_id": name,
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {
                "model": model,
                "messages": [{"role": "user", "content": question}],
                "max_tokens": 12,
                "temperature": 0,
            },
        }
        for name, question in QUESTIONS.items()
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    done = coserve(stack, "submit", str(path), "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "completed: 3 completed, 0 failed of 3" in done.stdout
    output = (tmp_path / "questions.output.jsonl").read_text().splitlines()
    assert not (tmp_path / "questions.errors.jsonl").exists()
    answers = {found["custom_id"]: found for found in map(json.loads, output)}
    assert set(answers) == set(QUESTIONS)
    for answer in answers.values():
        assert answer["response"]["status_code"] == 200
        assert answer["response"]["body"]["choices"][0]["message"]["content"]

    batch_id = done.stdout.partition(":")[0]
    shown = coserve(stack, "get", batch_id)
    assert f"{batch_id}: completed, 3 completed and 0 failed of 3" in shown.stdout
    assert coserve(stack, "cancel", batch_id).returncode == 1


def test_a_model_that_nobody_serves(stack: Stack, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    body = {"model": "nobody/serves-this", "messages": [{"role": "user", "content": "hi"}]}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body}
    path.write_text(json.dumps(line))
    done = coserve(stack, "submit", str(path), "--wait")
    assert done.returncode == 1
    assert "line 1: model_not_found" in done.stdout
