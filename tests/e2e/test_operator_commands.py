"""What an operator types at a running stack: status, top, logs, chat, restart, stop."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from store.schema import NEEDED
from tests.fakes.engine import VERSION
from tests.fixtures.supervised import COSERVE, ROOT, Up, wait_until
from tests.integration.coserve.commands.test_shapes import documented

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(900)]


def test_a_running_stack_is_watched_and_steered(
    up: Callable[..., Up], start_engine: Callable[..., str]
) -> None:
    stack = up(ENGINE_URLS=start_engine())
    stack.wait_until_ready()

    status = json.loads(stack.run("status", "--json").stdout)
    assert set(status) == documented()["status"]
    assert status["urls"]["api"] == f"{stack.url}/v1"
    assert {part["name"] for part in status["parts"]} >= {"gateway", "postgres", "beat"}
    assert all(part["ok"] for part in status["behind"].values())
    assert [model["up"] for model in status["models"]] == [True]
    assert status["versions"]["engines"] == [VERSION]
    assert status["versions"]["schema"] == NEEDED
    (versions,) = [
        one for one in stack.run("status").stdout.splitlines() if one.startswith("versions: ")
    ]
    assert versions.endswith(VERSION), "one that is no number is said as it is"
    assert status["queue"] == {"live_batches": 0, "open_rows": 0}
    assert json.loads(stack.run("top", "--once", "--json").stdout).keys() == status.keys()
    assert "gateway" in stack.run("top", "--once").stdout

    base = ("--base-url", f"{stack.url}/v1")
    answer = json.loads(stack.run("chat", "one two three", *base, "--json").stdout)
    assert set(answer) == documented()["chat"]
    assert answer["content"]
    assert answer["ttft_s"] > 0
    said = stack.run("chat", "one two three", *base)
    assert said.stdout.strip() == answer["content"].strip()
    assert "first token after" in said.stderr

    lines = stack.run("logs", "gateway", "--json", "-n", "500").stdout.splitlines()
    assert all(set(json.loads(each)) == documented()["logs"] for each in lines)
    assert any("/v1/chat/completions" in json.loads(each)["line"] for each in lines)
    assert stack.run("logs", "no-such").returncode == 1

    following = subprocess.Popen(
        [COSERVE, "logs", "gateway", "-f", "-n", "0"],
        env=stack.env,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert following.stdout is not None
        before = stack.pid_of("gateway")
        restarted = stack.run("restart", "gateway")
        assert restarted.stdout == "gateway is ready again.\n", restarted.stderr
        assert stack.pid_of("gateway") not in (None, before)
        again = stack.run("chat", "one two three", *base)
        assert again.returncode == 0, again.stderr
        assert following.stdout.readline()
    finally:
        following.terminate()
        following.communicate(timeout=10)
    assert "there are" in stack.run("restart", "no-such").stderr

    assert stack.run("stop").stdout == "Everything has stopped.\n"
    wait_until(lambda: stack.process.poll() is not None, "the supervisor ends", 10)
    assert stack.process.returncode == 0
    assert stack.run("stop").returncode == 3
