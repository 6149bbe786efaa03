"""Following an engine that measures itself, over a real socket; what is kept and what is said."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coserve.commands.profile import NotMeasuredError, _keep, summary, until_measured


def state(cells_done: int, named: str = "measuring") -> dict[str, Any]:
    return {
        "profile": {
            "state": named,
            "cells": 4,
            "cells_done": cells_done,
            "busy_s": 12.3,
            "held_out_mean_error": {"decode": 0.021, "prefill": 0.05},
        },
        "slo": {"ttft_s": 0.812, "tbt_s": 0.1325},
    }


@contextmanager
def engine(states: list[dict[str, Any]]) -> Iterator[str]:
    """Answers /server_info with one state after another, the last for ever."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            now = states.pop(0) if len(states) > 1 else states[0]
            body = json.dumps({"internal_states": [{"coserve": now}]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Quiet."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/server_info"
        finally:
            server.shutdown()
            thread.join()


def part(pid: int | None) -> Any:
    return SimpleNamespace(pid=pid, plan=SimpleNamespace(command=SimpleNamespace(log="e.log")))


async def test_progress_is_shown_until_the_profile_is_there() -> None:
    shown: list[int] = []
    with engine([state(0), state(3), state(4, "ready")]) as url:
        found = await until_measured(part(1), url, lambda p: shown.append(p["cells_done"]))
    assert shown == [0, 3, 4]
    assert found["profile"]["state"] == "ready"


async def test_an_engine_that_ends_meanwhile_is_told() -> None:
    with engine([state(1)]) as url, pytest.raises(NotMeasuredError, match=r"ended.*e\.log"):
        await until_measured(part(None), url, lambda p: None)


def test_the_new_profile_takes_the_place_of_the_old(tmp_path: Path) -> None:
    fresh, folder = tmp_path / "fresh", tmp_path / "profiles"
    fresh.mkdir()
    folder.mkdir()
    (folder / "a.json").write_text("old")
    (folder / "other.json").write_text("other")
    (fresh / "a.json").write_text("new")
    assert _keep(fresh, folder) == [folder / "a.json"]
    found = {path.name: path.read_text() for path in folder.iterdir()}
    assert found == {"a.json": "new", "other.json": "other"}


def test_what_is_said_names_errors_targets_and_place() -> None:
    lines = summary(state(4, "ready"), [Path("/p/a.json")])
    assert lines == [
        "Measured 4 steps in 12 s.",
        "Mean error on steps the fit had not seen: decode 2.1%, prefill 5.0%",
        "Targets: TTFT 812 ms, TBT 132 ms (COSERVE_TTFT_MS and COSERVE_TBT_MS set others)",
        "Stored: /p/a.json",
    ]
