"""A backup of a running stack brings everything back when the machine's state is gone."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.fixtures.supervised import Up, wait_until

pytestmark = pytest.mark.thorough


def lines(num: int, prompt: str) -> bytes:
    body = {"model": "fake-model", "messages": [{"role": "user", "content": prompt}]}
    rows = (
        {"custom_id": f"r{n}", "method": "POST", "url": "/v1/chat/completions", "body": body}
        for n in range(num)
    )
    return b"\n".join(map(orjson.dumps, rows))


def submit(http: httpx.Client, content: bytes) -> str:
    file = {"file": ("in.jsonl", content)}
    uploaded = http.post("/files", data={"purpose": "batch"}, files=file).json()
    body = {
        "input_file_id": uploaded["id"],
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
    }
    return str(http.post("/batches", json=body).json()["id"])


def batch(http: httpx.Client, batch_id: str) -> dict[str, Any]:
    return dict(http.get(f"/batches/{batch_id}").json())


def is_over(http: httpx.Client, batch_id: str) -> bool:
    return bool(batch(http, batch_id)["status"] == "completed")


def leftovers(home: Path) -> list[Path]:
    """What a backup and a restore leave that were killed."""
    links, staged = home / "files" / ".backup-dead", home / ".restore"
    for folder in (links, staged, home / "files" / ".restore"):
        folder.mkdir()
        (folder / "file-x").write_text("x")
    return [links, staged, home / "files" / ".restore"]


def test_a_lost_machine_comes_back(
    up: Callable[..., Up], start_engine: Callable[..., str], tmp_path: Path
) -> None:
    address = start_engine()
    first = up(ENGINE_URLS=address)
    key = first.wait_until_ready()
    saved = tmp_path / "saved.tar"
    keyed = {"authorization": f"Bearer {key}"}
    with httpx.Client(base_url=f"{first.url}/v1", headers=keyed) as http:
        done = submit(http, lines(5, "one two three"))
        wait_until(lambda: is_over(http, done), "the first batch is over")
        output = http.get(f"/files/{batch(http, done)['output_file_id']}/content").content
        # Half a minute a row: at work while the backup is made.
        running = submit(http, lines(3, "fake:tokens=3 fake:token_ms=10000"))
        wait_until(lambda: batch(http, running)["status"] == "in_progress", "it runs")
    made = first.run("backup", str(saved), "--json")
    assert made.returncode == 0, made.stderr
    manifest = json.loads(made.stdout)
    assert manifest["num_batches"] == 2
    assert manifest["num_files"] == 3
    assert manifest["missing"] == []
    assert saved.stat().st_mode & 0o777 == 0o600
    assert first.run("backup", str(saved)).returncode == 1, "an old backup is not overwritten"
    assert first.run("restore", str(saved)).returncode == 1, "not while it runs"

    verified = first.run("backup", "--verify", str(saved))
    assert verified.returncode == 0, verified.stderr
    assert "whole; 2 batches, 3 files" in verified.stdout

    first.end(signal.SIGKILL)
    wait_until(lambda: first.left() == [], "everything has ended", 20)
    # As root Postgres may live elsewhere (docs/running.md): that is lost too.
    cluster = Path((first.home / "postgres-socket").read_text()).parent
    shutil.rmtree(cluster)
    shutil.rmtree(first.home, ignore_errors=True)

    restored = first.run("restore", str(saved))
    assert restored.returncode == 0, restored.stderr
    assert "2 batches are back" in restored.stdout
    again = first.run("restore", str(saved))
    assert again.returncode == 1
    assert "has tables already" in again.stderr

    left = leftovers(first.home)
    second = up(ENGINE_URLS=address)
    assert second.wait_until_ready() == key
    assert [path for path in left if path.exists()] == [], "the next start sweeps"
    with httpx.Client(base_url=f"{second.url}/v1", headers=keyed) as http:
        assert is_over(http, done)
        file_id = batch(http, done)["output_file_id"]
        assert http.get(f"/files/{file_id}/content").content == output
        wait_until(lambda: is_over(http, running), "what ran goes on and ends", 180)
        counts = batch(http, running)["request_counts"]
        assert counts == {"total": 3, "completed": 3, "failed": 0}
    assert second.end(signal.SIGTERM) < 20
