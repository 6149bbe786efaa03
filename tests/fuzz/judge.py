"""What is wrong with an answer, whatever was asked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import orjson

INTERNAL: Final = re.compile(
    r"Traceback|\b[A-Z]\w*(Error|Exception|Warning)\b|pydantic|validation errors? for|NoneType"
    r"|<class '|object at 0x|\b\w+\.py\b|site-packages|sqlalchemy|psycopg|xgrammar|torch\."
    r"|not JSON serializable|object has no attribute|positional argument|codec can't|unhashable"
    r"|is not iterable"
)
"""Words of the code, which no caller is to read."""

OF_SERVER: Final = frozenset({"server_error", "internal_error", "engine_error", "api_error"})


def faults(status: int, content_type: str, content: bytes) -> list[str]:
    """What is wrong with an answer over HTTP; the same fault in the same words."""
    if content_type.startswith("text/event-stream") and status == 200:
        events = [line[6:] for line in content.split(b"\n") if line.startswith(b"data: {")]
        return [fault for event in events for fault in _of_text(200, event)]
    if status < 400 and content_type.startswith("application/jsonl"):
        return [fault for line in content.splitlines() for fault in _of_text(status, line)]
    if status < 400 and not content_type.startswith("application/json"):
        return []
    return _of_text(status, content)


def _of_text(status: int, content: bytes) -> list[str]:
    try:
        said = orjson.loads(content) if content else None
    except ValueError:
        return [f"{status}: not JSON"] + ([f"{status}"] if status >= 500 else [])
    return faults_in(status, said)


def faults_in(status: int, said: Any) -> list[str]:
    """The same of a decoded answer, or of a row's."""
    found = []
    errors = list(_errors(said))
    if status >= 500:
        code = errors[0].get("code") or errors[0].get("type") if errors else "no error body"
        found.append(f"{status}: {code}")
    elif status >= 400 and not (errors and errors[0].get("message")):
        found.append(f"{status}: without an error that says why")
    for error in errors:
        if status < 500 and (kind := OF_SERVER & {error.get("code"), error.get("type")}):
            found.append(f"{status}: {min(kind)} inside an answer")
        if word := INTERNAL.search(f"{error.get('message')} {error.get('code')}"):
            found.append(f"{status}: internal word {word[0]!r}")
    return found


def _errors(said: Any) -> Iterator[dict[str, Any]]:
    """Every error object that an answer holds, or is."""
    if isinstance(said, list):
        for inner in said:
            yield from _errors(inner)
    elif isinstance(said, dict):
        if said.get("type") == "error" and "message" in said:
            yield said
        for name, inner in said.items():
            if name == "error" and isinstance(inner, dict):
                yield inner
            elif name == "errors" and isinstance(inner, dict | list):
                data = inner.get("data") if isinstance(inner, dict) else inner
                yield from (one for one in data or () if isinstance(one, dict))
            elif name in ("response", "body", "data"):
                yield from _errors(inner)
