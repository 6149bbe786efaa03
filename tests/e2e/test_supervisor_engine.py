"""The supervisor and the real engine: idle, a crash under a batch, the supervisor's own death."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.fixtures.engine import TINY_MODEL
from tests.fixtures.supervised import Up, wait_until

pytestmark = pytest.mark.thorough

START_LIMIT_S = 300.0
IDLE_LIMIT = 0.25
"""Of one core, the whole stack. Far above its need (docs/running.md): it finds a spin."""
IDLE_POLL_INTERVAL_S = 10.0
NUM_LINES = 16
NUM_SHORT = 2
LONG_TOKENS = 600
"""At a step each the engine is at it for many seconds: it dies with most of them begun."""


@pytest.fixture
def own_stack(tiny_model: Path) -> Iterator[Up]:
    place = Path(tempfile.mkdtemp(prefix="cse-"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    up = Up(place / "home", port, COSERVE_MODEL=str(tiny_model))
    yield up
    if up.process.poll() is None:
        up.process.kill()
        up.process.wait(10)
    wait_until(lambda: up.left() == [], "leftovers", 30)
    shutil.rmtree(place)


def ask(http: httpx.Client) -> int:
    body = {
        "model": TINY_MODEL,
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": 4,
    }
    try:
        return http.post("/chat/completions", json=body).status_code
    except httpx.HTTPError:
        return 0


class Batch:
    """A few short lines, and many that take the engine a while."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self.custom_ids = [f"line-{n}" for n in range(NUM_LINES)]
        data = b"".join(orjson.dumps(self._line(n)) + b"\n" for n in range(NUM_LINES))
        file = self._http.post("/files", data={"purpose": "batch"}, files={"file": ("in", data)})
        wanted = {
            "input_file_id": file.json()["id"],
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
        }
        self._id = self._http.post("/batches", json=wanted).json()["id"]

    def _line(self, number: int) -> dict[str, Any]:
        body = {
            "model": TINY_MODEL,
            "messages": [{"role": "user", "content": f"Tell a story of {number} ships."}],
            "max_tokens": 4 if number < NUM_SHORT else LONG_TOKENS,
            "ignore_eos": True,
        }
        url = "/v1/chat/completions"
        return {"custom_id": self.custom_ids[number], "method": "POST", "url": url, "body": body}

    def shown(self) -> dict[str, Any]:
        response = self._http.get(f"/batches/{self._id}")
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    def num_done(self) -> int:
        return int(self.shown()["request_counts"]["completed"])

    def results(self) -> bytes:
        """What can be read so far."""
        return self._http.get(f"/batches/{self._id}/results").content

    def output(self) -> bytes:
        return self._http.get(f"/files/{self.shown()['output_file_id']}/content").content


@pytest.fixture
def http(own_stack: Up) -> Iterator[httpx.Client]:
    """The API, for the admin key."""
    key = own_stack.wait_until_ready(START_LIMIT_S)
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=f"{own_stack.url}/v1", headers=headers, timeout=60) as client:
        yield client


@pytest.mark.timeout(900)
def test_idle_then_a_dead_engine_then_a_dead_supervisor(own_stack: Up, http: httpx.Client) -> None:
    stack = own_stack
    assert ask(http) == 200

    # A model seen for the first time is measured once, in idle time.
    profiles = stack.home / "profiles"
    wait_until(lambda: list(profiles.glob("*.json")) != [], "the profile", START_LIMIT_S)
    time.sleep(3)
    used_before_s, looked_at = stack.cpu_s(), time.monotonic()
    time.sleep(IDLE_POLL_INTERVAL_S)
    idle = (stack.cpu_s() - used_before_s) / (time.monotonic() - looked_at)
    assert idle < IDLE_LIMIT, f"{idle:.1%} of a core while idle"

    victim = stack.pid_of("engine")
    assert victim is not None
    batch = Batch(http)
    wait_until(lambda: batch.num_done() >= NUM_SHORT, "the shortest lines are done", START_LIMIT_S)
    os.kill(victim, signal.SIGKILL)
    finished = batch.results()
    assert NUM_SHORT <= finished.count(b"\n") < NUM_LINES, "there was nothing to lose"
    wait_until(lambda: "The engine ended (exit code 137)" in stack.said(), "the crash is told")
    wait_until(lambda: ask(http) == 503, "no engine is a 503", 30)
    wait_until(lambda: ask(http) == 200, "the engine is back", START_LIMIT_S)

    wait_until(lambda: batch.shown()["status"] == "completed", "the batch", START_LIMIT_S)
    output = batch.output()
    assert output.startswith(finished), "what was finished is not run again"
    answered = [orjson.loads(line)["custom_id"] for line in output.splitlines()]
    assert sorted(answered) == sorted(batch.custom_ids)

    assert "our scheduler is live" in stack.run("doctor").stdout
    restarted = stack.run("restart", "engine")
    assert restarted.stdout == "engine is ready again.\n", restarted.stderr
    assert stack.pid_of("engine") != victim
    assert stack.run("logs", "engine", "-n", "5").stdout
    names = stack.names()
    assert any("schedul" in name for name in names), names
    stack.end(signal.SIGKILL)
    assert wait_until(lambda: stack.left() == [], "all ended", 30) < 10
