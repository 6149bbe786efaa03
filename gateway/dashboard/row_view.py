"""What a row of a batch looks like on a page: its state, its prompt and its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from batch.states import TERMINAL_ROW
from gateway.dashboard.row_errors import RowError
from store.repositories.row_browser import RowDetail, RowSummary
from store.states import RowStatus

MAX_PARAMETER: Final = 600
MAX_TEXT: Final = 20_000
"""Characters shown of one text."""
FIRST_CHARS: Final = 90
"""Characters of a text in the list."""
NORMAL_ENDS: Final = frozenset({"", "stop", "tool_calls", "embeddings"})
"""Finish reasons of an answer that is whole."""

STATES: Final[Mapping[str, tuple[str, str]]] = {
    RowStatus.PENDING: ("waiting", "idle"),
    RowStatus.LEASED: ("at the engine", "run"),
    RowStatus.SUCCEEDED: ("succeeded", "good"),
    RowStatus.ERRORED: ("failed", "bad"),
    RowStatus.CANCELLED: ("stopped by a cancel", "warn"),
    RowStatus.EXPIRED: ("stopped by the window", "warn"),
}


@dataclass(frozen=True)
class Message:
    """One text of a prompt or an answer, and whose it is."""

    role: str
    text: str

    @property
    def shown(self) -> str:
        return self.text[:MAX_TEXT]

    @property
    def is_cut(self) -> bool:
        """Whether the text is longer than what is shown."""
        return len(self.text) > MAX_TEXT


@dataclass(frozen=True)
class RowView:
    """One row as the page shows it.

    Attributes:
        row: From the database.
        request: Its line of the input; none if the file is not there any more.
    """

    row: RowDetail | RowSummary
    request: dict[str, Any] | None

    @property
    def state(self) -> tuple[str, str]:
        """What to call its status, and the kind of colour that goes with it."""
        return STATES[self.row.status]

    @property
    def body(self) -> dict[str, Any]:
        """The body of its request."""
        return mapping((self.request or {}).get("body"))

    @property
    def first_words(self) -> str:
        """How what was asked begins: of a chat the last message of a user."""
        asked = [one for one in self.prompt if one.role in ("user", "prompt")]
        return _first_words(asked[-1].text) if asked else ""

    @property
    def answer_words(self) -> str:
        """How the first answer begins."""
        answers = self.answers
        return _first_words(answers[0].text) if answers else ""

    @property
    def finish(self) -> tuple[str, str]:
        """Why the first answer ended, and the kind of colour: `warn` if it is not whole."""
        reason = self.answers[0].role if self.answers else ""
        return reason, "" if reason in NORMAL_ENDS else "warn"

    @property
    def took_s(self) -> float | None:
        """How long the engine took for it."""
        return None if self.row.took_ms is None else self.row.took_ms / 1000

    @property
    def prompt(self) -> list[Message]:
        """The messages of a chat, or the one text of another request."""
        messages = self.body.get("messages")
        if isinstance(messages, list):
            return [Message(str(m.get("role", "")), text_of(m.get("content"))) for m in messages]
        asked = self.body.get("prompt", self.body.get("input"))
        return [] if asked is None else [Message("prompt", text_of(asked))]

    @property
    def parameters(self) -> dict[str, str]:
        """Everything else of its request, by name."""
        return {
            key: _cut(text_of(value), MAX_PARAMETER)
            for key, value in self.body.items()
            if key not in ("messages", "prompt", "input")
        }

    @property
    def _result(self) -> dict[str, Any]:
        return mapping(orjson.loads(self.row.line)) if self.row.line else {}

    @property
    def answers(self) -> list[Message]:
        """What was answered, one for each choice."""
        body = mapping(mapping(self._result.get("response")).get("body"))
        found = []
        for choice in body.get("choices") or []:
            message = mapping(choice.get("message"))
            said = choice.get("text") if not message else message.get("content")
            calls = message.get("tool_calls")
            text = text_of(said) if said is not None else text_of(calls)
            found.append(Message(str(choice.get("finish_reason") or ""), text))
        if not found and body.get("data"):
            found.append(Message("embeddings", f"{len(body['data'])} vectors"))
        return found

    @property
    def error(self) -> RowError | None:
        """Why it failed; none for one that did not."""
        return RowError.of(self.row.line) if self.row.line else None

    @property
    def again(self) -> bool:
        """Whether it has ended and its request is there, so that it can be run again."""
        return self.row.status in TERMINAL_ROW and self.request is not None


def attempts_of(row: RowDetail) -> list[str]:
    """What happened before its end, in words."""
    said = []
    for num, one, many in (
        (row.attempt, "failed attempt", "failed attempts"),
        (row.num_losses, "engine lost meanwhile", "engines lost meanwhile"),
        (row.num_refusals, "refusal by a full engine", "refusals by full engines"),
    ):
        if num:
            said.append(f"{num} {one if num == 1 else many}")
    last = row.last_error or {}
    if last.get("message"):
        said.append(f"last error: {last['message']}")
    return said


def _first_words(text: str) -> str:
    return _cut(" ".join(text[: 4 * FIRST_CHARS].split()), FIRST_CHARS)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length].rstrip()} …"


def text_of(content: Any) -> str:
    """A text, the texts of a list of parts, or JSON of anything else."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        parts: Sequence[dict[str, Any]] = content
        if all("text" in part for part in parts):
            return "\n".join(str(part["text"]) for part in parts)
    return orjson.dumps(content, option=orjson.OPT_INDENT_2).decode()


def mapping(found: Any) -> dict[str, Any]:
    """What was found, if it is a JSON object; else an empty one."""
    return found if isinstance(found, dict) else {}
