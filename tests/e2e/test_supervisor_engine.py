"""The supervisor and the real engine: idle, crash, and the supervisor's own sudden death."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.fixtures.supervised import ROOT, Up, wait_until

MODEL = ROOT / ".coserve/models/SmolLM2-135M-Instruct"
START_LIMIT_S = 300.0
IDLE_LIMIT = 0.25
"""Of one core, the whole stack. Far above its need (docs/running.md): it finds a spin."""
IDLE_LOOK_S = 20.0


@pytest.fixture
def stack() -> Iterator[Up]:
    place = Path(tempfile.mkdtemp(prefix="cse-"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {"COSERVE_MODEL": str(MODEL)} if (MODEL / "config.json").is_file() else {}
    up = Up(place / "home", port, **settings)
    yield up
    if up.process.poll() is None:
        up.process.kill()
        up.process.wait(10)
    wait_until(lambda: up.left() == [], "leftovers", 30)
    shutil.rmtree(place)


def ask(stack: Up, key: str) -> int:
    body = {
        "model": MODEL.name,
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": 4,
    }
    headers = {"Authorization": f"Bearer {key}"}
    url = f"{stack.url}/v1/chat/completions"
    try:
        return httpx.post(url, json=body, headers=headers, timeout=60).status_code
    except httpx.HTTPError:
        return 0


@pytest.mark.timeout(900)
def test_idle_then_a_dead_engine_then_a_dead_supervisor(stack: Up) -> None:
    key = stack.wait_until_ready(START_LIMIT_S)
    assert ask(stack, key) == 200

    # A model seen for the first time is measured once, in idle time.
    profiles = stack.home / "profiles"
    wait_until(lambda: list(profiles.glob("*.json")) != [], "the profile", START_LIMIT_S)
    time.sleep(3)
    used_before_s, looked_at = stack.cpu_s(), time.monotonic()
    time.sleep(IDLE_LOOK_S)
    idle = (stack.cpu_s() - used_before_s) / (time.monotonic() - looked_at)
    assert idle < IDLE_LIMIT, f"{idle:.1%} of a core while idle"

    victim = stack.pid_of("engine")
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: "The engine ended (exit code 137)" in stack.said(), "the crash is told")
    wait_until(lambda: ask(stack, key) == 503, "no engine is a 503", 30)
    wait_until(lambda: ask(stack, key) == 200, "the engine is back", START_LIMIT_S)

    names = {each.name() for each in stack.tree()}
    assert any("schedul" in name for name in names), names
    stack.end(signal.SIGKILL)
    assert wait_until(lambda: stack.left() == [], "all ended", 30) < 10
