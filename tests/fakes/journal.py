"""What the fake engine was asked and what it answered, in a file that outlives a kill -9.

One JSON object a line: `{"at": seconds since the epoch, "event": "begun" | "served", "rid": ...,
"prompt": its first 200 characters}`. `served` is written when the answer is complete, before it is
sent: a caller that died meanwhile never saw it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from engine_adapter.client.encoding import wall_s
from tests.fakes.script import prompt_text

BEGUN, SERVED = "begun", "served"
_PROMPT_CHARS = 200


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a journal; `at_s` is seconds since the epoch."""

    at_s: float
    event: str
    rid: str
    prompt: str


class Journal:
    """Appends to a file; without one it does nothing."""

    def __init__(self, path: Path | None = None) -> None:
        self._descriptor = -1
        if path is not None:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, event: str, path: str, body: Mapping[str, Any]) -> None:
        """Write one line, in one call to the kernel: whole or not at all when we are killed."""
        if self._descriptor < 0:
            return
        prompt = prompt_text(path, body)[:_PROMPT_CHARS]
        entry = {"at": wall_s(), "event": event, "rid": body.get("rid"), "prompt": prompt}
        os.write(self._descriptor, orjson.dumps(entry) + b"\n")


def read_journal(path: Path) -> Iterator[Entry]:
    """The lines of a journal, oldest first."""
    with path.open("rb") as journal:
        for line in journal:
            entry = orjson.loads(line)
            yield Entry(entry["at"], entry["event"], str(entry["rid"]), entry["prompt"])
