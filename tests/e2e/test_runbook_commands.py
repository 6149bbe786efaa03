"""What the pages of docs/operations tell operators to type, typed at one running stack."""

from __future__ import annotations

import shlex
from collections.abc import Callable

import httpx
import pytest

from tests.e2e.test_backup import batch, lines, submit
from tests.fixtures.supervised import Up, wait_until
from tests.unit.coserve.test_operations import PAGES, commands

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(900)]

ELSEWHERE = ("backup", "restore", "up", "simulate", "profile", "logs engine", "restart engine")
"""How commands begin that have tests of their own, or want an engine of this stack: test_backup,
test_supervisor_engine, tests/unit/coserve/test_operations and commands/test_profile."""
NAMED_ONLY = {"logs", "restart", "project set", "plan", "webhook enable ENDPOINT_ID"}
"""What a sentence names without its words, and what wants an endpoint that was disabled."""
RUN_BEFORE = {"engine remove URL": "engine add URL"}


def operators_commands() -> list[str]:
    pages = (page for page in PAGES if "operations" in page.parts)
    found = {" ".join(one.split()) for page in pages for one in commands(page)} - NAMED_ONLY
    told = sorted(one for one in found if not one.startswith(ELSEWHERE))
    first = [RUN_BEFORE[one] for one in told if one in RUN_BEFORE]
    return [*first, *(one for one in told if one not in first)]


def test_what_the_runbook_says_can_be_typed(
    up: Callable[..., Up], start_engine: Callable[..., str]
) -> None:
    stack = up(ENGINE_URLS=start_engine())
    keyed = {"authorization": f"Bearer {stack.wait_until_ready()}"}
    with httpx.Client(base_url=f"{stack.url}/v1", headers=keyed) as http:
        failed = submit(http, lines(2, "fake:status=400"))
        wait_until(lambda: batch(http, failed)["status"] == "completed", "one has failed rows")
        running = submit(http, lines(3, "fake:tokens=3 fake:token_ms=60000"))
        wait_until(lambda: batch(http, running)["status"] == "in_progress", "one runs")
    told = operators_commands()
    assert len(told) > 20
    assert {"status", "doctor", "restart postgres", "restart valkey"} <= set(told)
    for command in told:
        words = {
            "BATCH_ID": failed if command.startswith("batch retry") else running,
            "PROJECT_ID": "proj_default",
            "URL": "http://127.0.0.1:1",
            "N": "1000000000",
        }
        argv = [words.get(word, word) for word in shlex.split(command)]
        done = stack.run(*argv, *(["--once"] if command == "top" else []))
        # One that looks may find something wrong: the engine here has not our scheduler.
        good = {0, 1} if command == "doctor" else {0}
        assert done.returncode in good, (command, done.stdout, done.stderr)
