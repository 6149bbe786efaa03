"""What plans cannot carry is served by SGLang's own scheduler, which says so."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.engine.engine_scripts import LIMIT_S, run_script

pytestmark = pytest.mark.timeout(LIMIT_S)


@cache
def results() -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        return run_script("coserving_level_zero.py", Path(folder))


def test_requests_come_in_and_are_answered() -> None:
    assert {rid: len(ids) for rid, ids in results()["answers"].items()} == {"row": 24, "chat": 24}


def test_chat_goes_before_a_row_that_waits_and_so_does_what_has_no_class() -> None:
    assert results()["order"][-3:] == ["probe", "chat_2", "row_2"]


def test_an_abort_frees_the_slot() -> None:
    aborted = results()["aborted"]
    assert 0 < aborted["tokens"] < 200
    assert aborted["live"] == {"waiting": [], "running": [], "classes": {}}
    assert results()["flushed"]


def test_it_says_its_level_and_why_and_takes_no_level_of_ours() -> None:
    report = results()["report"]
    assert (report["policy"], report["coserving_level"]) == ("off", 0)
    assert report["coserving_reasons"].keys() == {"1", "2", "3"}
    assert all("--disable-radix-cache" in why for why in report["coserving_reasons"].values())
    assert results()["level taken"] is False
