"""A status is a word of `store/states.py`; nobody else writes it as text."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

from store.states import BatchStatus, DeliveryStatus, RowStatus, UploadStatus

ROOT: Final = Path(__file__).parents[2]
ROOMS: Final = ("batch", "coserve", "engine_adapter", "gateway", "service", "store")
WORDS: Final = {str(one) for kind in (BatchStatus, RowStatus, UploadStatus) for one in kind} | {
    str(one) for one in DeliveryStatus
}
_RESPONSE: Final = "statuses of a response, which are OpenAI's own"
_COUNTS: Final = "names of a batch's request counts"
_PEOPLE: Final = "groups and words that people see"
ELSEWHERE: Final = {
    "batch/background.py": _RESPONSE,
    "coserve/commands/batch/reading.py": _COUNTS,
    "coserve/commands/batch/wait.py": _COUNTS,
    "coserve/commands/batch/words.py": _COUNTS,
    "coserve/commands/top.py": _COUNTS,
    "coserve/local/snapshot.py": _COUNTS,
    "coserve/prove/findings.py": "counts of chats",
    "gateway/dashboard/batch_page.py": _PEOPLE,
    "gateway/dashboard/row_view.py": _PEOPLE,
    "gateway/dashboard/rows.py": _PEOPLE,
    "gateway/dashboard/batch_view.py": _PEOPLE,
    "gateway/responses/background.py": _RESPONSE,
    "gateway/responses/shelf.py": _RESPONSE,
    "gateway/routes/shapes.py": _RESPONSE,
    "gateway/verdict/judge.py": "one of its tables of issues",
    "store/repositories/result.py": "a column of that name",
    "store/repositories/retention.py": "a column of that name",
    "store/repositories/row_browser.py": _PEOPLE,
}
"""Files that use such a word for something else, and for what."""


def _written(path: Path) -> list[str]:
    return [
        f"{path.name}:{node.lineno} {node.value}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in WORDS
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_no_status_is_written_as_text(room: str) -> None:
    files = {str(one.relative_to(ROOT)): one for one in (ROOT / room).rglob("*.py")}
    files.pop("store/states.py", None)
    found = [said for name, one in files.items() if name not in ELSEWHERE for said in _written(one)]
    assert found == []


@pytest.mark.parametrize("file", ELSEWHERE)
def test_an_exception_is_still_one(file: str) -> None:
    assert _written(ROOT / file), "take it off the list"


def test_what_is_looked_for_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('if batch.status == "finalizing":\n    rows = {"leased"}\n')
    assert _written(tmp_path / "a.py") == ["a.py:1 finalizing", "a.py:2 leased"]
