"""`coserve up` from start to end: crashes, signals, leftovers; a fake engine for speed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psycopg
import pytest

from coserve.local.ports import free_port
from coserve.local.snapshot import parts_of
from tests.fixtures.supervised import Up, clean_environment, processes_of, wait_until

pytestmark = pytest.mark.thorough

STOP_LIMIT_S = 15.0


def test_crashed_parts_come_back_and_a_new_start_follows_a_killed_supervisor(
    up: Callable[..., Up], start_engine: Callable[..., str]
) -> None:
    address = start_engine()
    stack = up(ENGINE_URLS=address)
    key = stack.wait_until_ready()
    assert key not in stack.said(), "what is no terminal is kept and read by others"
    assert (stack.home / "admin-key").stat().st_mode & 0o777 == 0o600
    models = httpx.get(f"{stack.url}/v1/models", headers={"Authorization": f"Bearer {key}"})
    assert models.status_code == 200

    second = stack.run("up")
    assert second.returncode == 1
    assert "running already" in second.stderr
    assert stack.url in second.stderr
    assert str(stack.process.pid) in second.stderr

    status = stack.run("status").stdout
    parts = [
        "postgres",
        "valkey",
        "worker-dispatch",
        "worker-stages",
        "worker-sweep",
        "beat",
        "gateway",
    ]
    for name in parts:
        assert any(line.split()[:2] == [name, "ready"] for line in status.splitlines()), status
        victim = stack.pid_of(name)
        assert victim is not None
        os.kill(victim, signal.SIGKILL)

    def all_back() -> bool:
        seen = parts_of(stack.home)
        return len(seen) == len(parts) and all(part["state"] == "ready" for part in seen)

    wait_until(lambda: stack.said().count("starting it again") >= len(parts), "crashes are told")
    wait_until(all_back, "all parts are back")
    shown = json.loads(stack.run("status", "--json").stdout)["parts"]
    assert {(part["name"], part["state"]) for part in shown} == {(name, "ready") for name in parts}
    stack.wait_until_ready()
    assert "Gateway ended (exit code 137)" in stack.said().replace("The gateway", "Gateway")

    assert len(processes_of(stack.home)) > 6
    stack.end(signal.SIGKILL)
    next_one = up(ENGINE_URLS=address)  # at once: the children of the first may still be ending
    assert next_one.wait_until_ready() == key
    wait_until(lambda: stack.tree_left() == [], "nothing of the first lives", 20)

    assert next_one.end(signal.SIGINT, group=True) < STOP_LIMIT_S
    assert next_one.process.returncode == 0, next_one.said()
    assert next_one.left() == []
    assert next_one.run("status").returncode == 3


def test_a_stop_in_the_middle_of_the_start_leaves_nothing(
    up: Callable[..., Up], start_engine: Callable[..., str]
) -> None:
    stack = up(ENGINE_URLS=start_engine())
    wait_until(lambda: "Postgres 18:" in stack.said(), "the start is under way")
    assert stack.end(signal.SIGTERM) < STOP_LIMIT_S
    assert stack.process.returncode == 0, stack.said()
    assert "API key" not in stack.said()
    assert stack.left() == []


def batch_of(url: str, key: str, num_lines: int, model: str) -> str:
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
    lines = "".join(
        json.dumps(
            {"custom_id": str(n), "method": "POST", "url": "/v1/chat/completions", "body": body}
        )
        + "\n"
        for n in range(num_lines)
    )
    with httpx.Client(headers={"Authorization": f"Bearer {key}"}, base_url=url) as client:
        file = client.post("/v1/files", data={"purpose": "batch"}, files={"file": lines.encode()})
        assert file.status_code == 200, file.text
        wanted = {
            "input_file_id": file.json()["id"],
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
        }
        batch = client.post("/v1/batches", json=wanted)
        assert batch.status_code == 200, batch.text
    batch_id: str = batch.json()["id"]
    return batch_id


def test_a_stop_gives_leased_rows_back_and_the_next_start_finishes_the_batch(
    up: Callable[..., Up], start_engine: Callable[..., str], database_url: str, broker_url: str
) -> None:
    given = {"DATABASE_URL": database_url, "BROKER_URL": broker_url}
    address = database_url.replace("+psycopg", "")

    def rows_in(status: str) -> int:
        with psycopg.connect(address) as connection:
            found = connection.execute(
                "SELECT count(*) FROM batch_rows WHERE status = %s", (status,)
            ).fetchone()
        assert found is not None
        return int(found[0])

    stack = up(ENGINE_URLS=start_engine(latency_ms=600_000), **given)
    key = stack.wait_until_ready()
    assert "DATABASE_URL is used" in stack.said()
    assert not (stack.home / "postgres").exists()
    headers = {"Authorization": f"Bearer {key}"}
    model = httpx.get(f"{stack.url}/v1/models", headers=headers).json()["data"][0]["id"]
    batch_id = batch_of(stack.url, key, 20, model)
    wait_until(lambda: rows_in("leased") == 20, "all rows are at the engine")
    assert stack.end(signal.SIGTERM) < STOP_LIMIT_S
    assert (rows_in("leased"), rows_in("pending")) == (0, 20)

    again = up(ENGINE_URLS=start_engine(latency_ms=5), **given)
    again.wait_until_ready()

    def status() -> str:
        found = httpx.get(f"{again.url}/v1/batches/{batch_id}", headers=headers)
        assert found.status_code == 200, found.text
        return str(found.json()["status"])

    wait_until(lambda: status() == "completed", "the batch")
    again.end(signal.SIGKILL)
    assert wait_until(lambda: again.left() == [], "all ended within seconds", 20) < 8


def run_up(home: Path, **settings: str) -> tuple[int, str, float]:
    started_at = time.monotonic()
    done = subprocess.run(
        [Path(sys.executable).parent / "coserve", "up"],
        env=clean_environment({"COSERVE_HOME": str(home), **settings}),
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stderr, time.monotonic() - started_at


def test_wrong_settings_stop_the_start_with_one_line(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, said, _ = run_up(home, COSERVE_PORT=str(taken.getsockname()[1]))
        assert code == 2
        assert "COSERVE_PORT" in said
        assert said.count("\n") == 1
    for settings, word in (
        ({"COSERVE_PROT": "1"}, "Did you mean COSERVE_PORT?"),
        ({"COSERVE_PORT": "eighty"}, "COSERVE_PORT"),
        ({"COSERVE_MODEL": "/no/model", "COSERVE_PORT": str(free_port())}, "COSERVE_MODEL"),
    ):
        code, said, _ = run_up(home, **settings)
        assert code == 2, said
        assert word in said
        assert said.count("\n") == 1


def test_an_unreachable_database_is_told_not_traced(home: Path) -> None:
    code, said, _ = run_up(
        home,
        COSERVE_PORT=str(free_port()),
        DATABASE_URL="postgresql+psycopg://app@127.0.0.1:9/app",
        ENGINE_URLS="http://127.0.0.1:9",
    )
    assert code == 1
    assert "DATABASE_URL" in said
    assert "Traceback" not in said
    assert processes_of(home) == []
