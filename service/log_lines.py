"""One line per event, of one schema for every process of ours; standard library only.

    at        instant, UTC, milliseconds
    level     debug, info, warning, error, critical
    part      gateway, worker-dispatch, beat, …
    logger    who says it
    message   what, in our own words
    …         request_id, batch_id, trace_id, and what else the event has
    error     {type, stack, cause}: never the words of an exception, which may quote a caller

An exception of somebody else's library may hold a prompt, a key or a bound value in its words, and
those libraries log it. So of every exception the types and the places are written, and of a foreign
logger's line about one only what it says before filling in arguments.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, Final, TextIO

OURS: Final = ("gateway", "batch", "store", "engine_adapter", "coserve", "service")
MAX_MESSAGE_CHARS: Final = 2000
MAX_FRAMES: Final = 30
MAX_CAUSES: Final = 4

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The request that is being served; every line logged meanwhile carries it."""

_MORE: list[Callable[[], Mapping[str, Any]]] = []


def add_context(more: Callable[[], Mapping[str, Any]]) -> None:
    """Ask `more` for further fields of every line, as the ids of the present trace."""
    if more not in _MORE:
        _MORE.append(more)


def fields_of(record: logging.LogRecord, part: str) -> dict[str, Any]:
    """A record in our schema."""
    at = datetime.fromtimestamp(record.created, UTC)
    line: dict[str, Any] = {
        "at": at.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z",
        "level": record.levelname.lower(),
        "part": part,
        "logger": record.name,
        "message": message_of(record),
    }
    current = request_id.get()
    if current is not None:
        line["request_id"] = current
    for more in _MORE:
        line.update(more())
    line.update(getattr(record, "fields", None) or {})
    if record.exc_info and record.exc_info[1] is not None:
        line["error"] = error_of(record.exc_info[1])
    return line


def message_of(record: logging.LogRecord) -> str:
    """The message; of a library's line about an exception only its fixed words."""
    if record.name.split(".")[0] in OURS:
        return record.getMessage()[:MAX_MESSAGE_CHARS]
    if not record.exc_info:
        # asyncio puts an exception's words into its lines, from the second one on.
        return record.getMessage().split("\n", 1)[0][:MAX_MESSAGE_CHARS]
    if isinstance(record.args, Mapping) and "name" in record.args:  # a task of Celery
        return f"task {record.args['name']} raised"
    return str(record.msg).split("\n", 1)[0][:MAX_MESSAGE_CHARS]


def error_of(error: BaseException, depth: int = MAX_CAUSES) -> dict[str, Any]:
    """An exception without its words: types and places, and those of what caused it."""
    told: dict[str, Any] = {"type": type(error).__name__}
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
    if isinstance(state, str):
        told["sqlstate"] = state
    frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    told["stack"] = [f"{_short(one.filename)}:{one.lineno} {one.name}" for one in frames]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and depth:
        told["cause"] = error_of(cause, depth - 1)
    if isinstance(error, BaseExceptionGroup) and depth:
        told["members"] = [error_of(one, depth - 1) for one in error.exceptions[:MAX_CAUSES]]
    return told


def _short(path: str) -> str:
    return "/".join(PurePath(path).parts[-3:])


_ENCODER: Final = json.JSONEncoder(default=str, ensure_ascii=False)


class JsonLines(logging.Formatter):
    """The schema as JSON, one object a line."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self._part = part

    def format(self, record: logging.LogRecord) -> str:
        return _ENCODER.encode(fields_of(record, self._part))


class TextLines(logging.Formatter):
    """The same for people: what is always there in words, the rest as `key=value`."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self._part = part

    def format(self, record: logging.LogRecord) -> str:
        line = fields_of(record, self._part)
        at, level, part, name, said = (line.pop(key) for key in _ALWAYS)
        error = line.pop("error", None)
        words = [at, level.upper(), part, name, said.replace("\n", " | ")]
        words += [f"{key}={_value(value)}" for key, value in line.items() if value is not None]
        return " ".join(words) + (f"\n{_told(error)}" if error else "")


_ALWAYS: Final = ("at", "level", "part", "logger", "message")


def _value(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if " " in text or '"' in text else text


def _told(error: Mapping[str, Any], indent: str = "    ") -> str:
    lines = [f"{indent}{error['type']} {error.get('sqlstate', '')}".rstrip()]
    lines += [f"{indent}  {frame}" for frame in error["stack"]]
    below = [error["cause"]] if "cause" in error else error.get("members", ())
    return "\n".join([*lines, *(_told(one, indent + "  ") for one in below)])


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes to standard error. Invariant: what is held is written when `together` ends."""

    def __init__(self) -> None:
        super().__init__()
        self._held: list[str] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self._held is None:
            super().emit(record)
            return
        try:
            self._held.append(self.format(record) + self.terminator)
        except Exception:  # noqa: BLE001 - as logging does: such a line ends nobody
            self.handleError(record)

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is logged in the block leaves in one piece at its end."""
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            self.stream.write("".join(held))
            self.flush()


def together() -> AbstractContextManager[None]:
    """What is logged in the block leaves in one piece: a system call for all of it."""
    handlers = logging.getLogger().handlers
    return next((one.together() for one in handlers if isinstance(one, LineHandler)), nullcontext())


def configure(part: str, form: str, level: int | str) -> None:
    """Log to standard error in one of the two forms; whatever was set up before is gone."""
    handler = LineHandler()
    handler.setFormatter(JsonLines(part) if form == "json" else TextLines(part))
    logging.basicConfig(level=level, handlers=[handler], force=True)
