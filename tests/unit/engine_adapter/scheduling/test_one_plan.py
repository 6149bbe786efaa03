"""How far one has to read to follow one plan: files it passes, and calls from file to file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.latency import PolynomialModel
from engine_adapter.scheduling.policies.registry import create_policy
from engine_adapter.scheduling.request import Phase

PACKAGE = str(Path(sys.modules[Driver.__module__].__file__ or "").parent)
MOST_FILES = 12
MOST_CALLS = 124


def walk(act: Callable[[], Any]) -> tuple[set[str], int]:
    """Files of the package that a call passes, and calls that lead from one into another."""
    files: set[str] = set()
    calls = 0

    def seen(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        if event != "call" or frame.f_code.co_name.startswith("<"):
            return
        here = frame.f_code.co_filename
        if not here.startswith(PACKAGE):
            return
        files.add(here)
        before = frame.f_back
        if before is not None and before.f_code.co_filename != here:
            calls += 1

    sys.setprofile(seen)
    try:
        act()
    finally:
        sys.setprofile(None)
    return files, calls


def test_a_plan_can_be_followed_through_few_files(world: Any, model: PolynomialModel) -> None:
    """Chat decodes, a prompt came, offline requests decode, fill and wait: a usual mixed step."""
    for number in range(4):
        world.online(f"chat-{number}", phase=Phase.DECODE)
        world.offline(f"row-{number}", phase=Phase.DECODE)
        world.offline(f"next-{number}", prompt=200)
    world.online("new", prompt=60)
    world.offline("half", prompt=300, phase=Phase.PREFILL, computed=160)
    driver = Driver(create_policy("conserve_v2", model))
    driver.begin(world.snapshot())  # what is made once is made
    snapshot = world.snapshot()
    files, calls = walk(lambda: driver.begin(snapshot))
    names = sorted(Path(file).name for file in files)
    assert len(files) <= MOST_FILES, names
    assert calls <= MOST_CALLS
