"""Identifiers keep to the glossary, as pages do: a row is a line of a batch, never a request.

The rooms of the engine speak of requests. What else is called a row there has a reason below.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
ROOMS: Final = ("engine_adapter/scheduling", "engine_adapter/sglang", "lab")
NOT_USED: Final = {
    "row": "request",
    "rows": "requests",
    "prefetch": "restore",
    "prefetches": "restores",
    "prefetching": "restoring",
    "swap": "retract, restore",
    "iteration": "step",
}
"""Words of the glossary's last table that code has used for other things, and what to say."""

ELSEWHERE: Final = {
    "engine_adapter/sglang/decode_batch.py": "rows of tensors",
    "engine_adapter/sglang/safepoints.py": "rows of tensors, cut out between two layers",
    "lab/emulated/model_runner.py": "rows of tensors",
    "lab/simulator/sizing.py": "rows of the batch that is planned for",
    "lab/workload/lengths.py": "rows of a table in a file",
    "lab/workload/report.py": "rows of a table in a file",
}
NAMES: Final = {
    "decode_row_steps": "a field of stored profiles",
    "VllmSwap": "vLLM's own word for what its policy does",
}

LOOKS: Final = {"look", "looks", "looked", "looking"}
"""A repeated read is a poll, and any other look has a verb of its own: check, inspect, read."""
LOOK_UP: Final = re.compile(r"_?look(ed)?_?up", re.IGNORECASE)
LOOKS_ELSEWHERE: Final = {
    "engine_adapter/sglang/cuda_pass.py": "a read of the stop flag between two segments",
    "engine_adapter/sglang/safepoints.py": "a read of the stop flag between two layers",
    "gateway/verdict/facts.py": "how far back an alert looks",
    "gateway/verdict/judge.py": "how far back an alert looks",
    "gateway/verdict/reading.py": "how far back an alert looks",
    "gateway/dashboard/overview.py": "how far back an alert looks",
    "gateway/dashboard/resources.py": "a parameter of a page",
}

WINDOWS_ELSEWHERE: Final = {
    "batch/run/dispatch.py": "the rows of a dispatcher",
    "batch/run/engine_watch.py": "the rows of a dispatcher",
    "batch/run/window.py": "the rows of a dispatcher",
    "coserve/commands/batch/submit.py": "an option, which is a completion window",
    "gateway/dashboard/pages.py": "a parameter of an address, which is a span",
    "gateway/http/content_coding.py": "zlib's window",
    "store/models/dispatcher.py": "the rows of a dispatcher",
    "store/repositories/dispatch_count.py": "the rows of a dispatcher",
}
"""Files with a *window*. A batch has a completion window, a model a sliding one, a chart a span."""
WINDOW: Final = re.compile(r"(?<!completion_)(?<!sliding_)window", re.IGNORECASE)

RENAMED: Final = {
    "CHAT_LOOKS": "CHAT_POLLS",
    "SharedLook": "SharedPoll",
    "is_over_window": "is_overdue",
    "looks_at_prompts": "routes_by_prompt",
    "ALIAS_TIERS": "SERVED_TIERS",
    "DEFAULT_TIERS": "SERVED_TIERS",
    "Flight": "Attempt",
    "Flights": "InFlight",
    "HUNG_LOOKS": "HUNG_POLLS",
    "LOOK_EVERY_S": "POLL_INTERVAL_S",
    "LOOK_S": "POLL_INTERVAL_S",
    "LeasedBuckets": "PrepaidBuckets",
    "LineFault": "LineError",
    "Outbox": "ResultWriter",
    "ReceiverLooks": "WebhookProbeLimit",
    "RowSource": "RowClaimer",
    "Shelf": "ResponseStore",
    "Siblings": "PeerMetrics",
    "StepLevel": "StepTimes",
    "TURN_S": "CLAIM_INTERVAL_S",
    "UnknownKeys": "UnknownKeyLimiter",
    "first_token_share": "ttft_planning_share",
    "hand_backs": "rebalance",
    "needy": "under_served",
    "spare_collector": "freeze_gc",
    "step_level": "slowdown",
    "take_turns": "work",
    "word_of": "class_label",
}
"""Names that meant two things or nothing outside this project, and what they are called now."""
PRODUCT: Final = ("api", "batch", "coserve", "engine_adapter", "gateway", "service", "store")


def _parts(name: str) -> Iterator[str]:
    for part in re.split(r"_+|(?<=[a-z])(?=[A-Z])", name):
        if part:
            yield part.lower()


def _names(path: Path) -> set[str]:
    source = io.StringIO(path.read_text("utf-8"))
    return {one.string for one in tokenize.generate_tokens(source.readline) if one.type == 1}


def _wrong_names(path: Path) -> dict[str, str]:
    return {
        name: NOT_USED[part]
        for name in _names(path) - NAMES.keys()
        for part in _parts(name)
        if part in NOT_USED
    }


def _files() -> Iterator[str]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            yield str(path.relative_to(ROOT))


@pytest.mark.parametrize("file", [file for file in _files() if file not in ELSEWHERE])
def test_an_identifier_uses_the_word_of_the_glossary(file: str) -> None:
    assert _wrong_names(ROOT / file) == {}


@pytest.mark.parametrize("room", PRODUCT)
def test_a_name_that_was_replaced_is_not_used_again(room: str) -> None:
    used = {name for path in (ROOT / room).rglob("*.py") for name in _names(path)}
    assert {name: RENAMED[name] for name in used if name.lstrip("_") in RENAMED} == {}


def _looks(path: Path) -> set[str]:
    return {
        name
        for name in _names(path)
        if not LOOKS.isdisjoint(_parts(name)) and not LOOK_UP.fullmatch(name)
    }


@pytest.mark.parametrize("room", PRODUCT)
def test_no_identifier_is_a_look(room: str) -> None:
    found = {
        name: looks
        for path in (ROOT / room).rglob("*.py")
        if (name := str(path.relative_to(ROOT))) not in LOOKS_ELSEWHERE and (looks := _looks(path))
    }
    assert found == {}


@pytest.mark.parametrize("file", LOOKS_ELSEWHERE)
def test_a_look_that_is_excused_is_there(file: str) -> None:
    assert _looks(ROOT / file), "take it off the list"


def _windows(path: Path) -> set[str]:
    return {name for name in _names(path) if WINDOW.search(name)}


@pytest.mark.parametrize("room", PRODUCT)
def test_a_window_is_of_a_dispatcher(room: str) -> None:
    found = {
        name: windows
        for path in (ROOT / room).rglob("*.py")
        if (name := str(path.relative_to(ROOT))) not in WINDOWS_ELSEWHERE
        and (windows := _windows(path))
    }
    assert found == {}


@pytest.mark.parametrize("file", WINDOWS_ELSEWHERE)
def test_a_window_that_is_excused_is_there(file: str) -> None:
    assert _windows(ROOT / file), "take it off the list"


@pytest.mark.parametrize("file", ELSEWHERE)
def test_an_exception_is_still_one(file: str) -> None:
    assert _wrong_names(ROOT / file), "take it off the list"


def test_what_is_looked_for_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("RequestRow = num_rows = None\ngrow = narrow = row_of = 1\n")
    found = _wrong_names(tmp_path / "a.py")
    assert found.keys() == {"RequestRow", "num_rows", "row_of"}
