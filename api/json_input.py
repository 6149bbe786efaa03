"""JSON as it comes in: the body of a request, or one line of a batch.

Its size and depth are looked at before anything is built of it (`api.json_shape`). Where it cannot
be read, the answer says where and why: JSON allows numbers and escapes that no reader can hold.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from api.errors import InvalidRequest
from api.json_shape import check_shape

BOM: Final = b"\xef\xbb\xbf"
"""Some editors and shells begin a text with it."""


class NotUtf8(InvalidRequest):
    """Some bytes are no text."""

    default_code = "invalid_json"


def read(raw: bytes, what: str = "The body") -> Any:
    """The value of some JSON in UTF-8.

    Args:
        raw: It, perhaps with a byte order mark.
        what: What it is called in an error.

    Raises:
        NotUtf8: Code `invalid_json`.
        InvalidRequest: Code `invalid_json` or `json_too_complex`.
    """
    raw = raw.removeprefix(BOM)
    try:
        check_shape(raw)
        return orjson.loads(raw)
    except InvalidRequest as refused:
        message = refused.message.replace("The body", what, 1)
        raise InvalidRequest(message, code=refused.code) from None
    except orjson.JSONDecodeError as error:
        raise _unreadable(raw, what, error) from None


def read_object(raw: bytes) -> dict[str, Any]:
    """The same of a body that must be an object.

    Raises:
        InvalidRequest: As `read`, or it is something else.
    """
    body = read(raw)
    if not isinstance(body, dict):
        raise InvalidRequest("The body must be a JSON object.", code="invalid_json")
    return body


def _unreadable(raw: bytes, what: str, error: orjson.JSONDecodeError) -> InvalidRequest:
    try:
        raw.decode()
    except UnicodeDecodeError as bad:
        return NotUtf8(f"{what} is not UTF-8 (byte {bad.start + 1}).")
    place = f"(character {error.pos + 1})"
    if not raw.strip():
        why = "is empty: JSON is expected"
    elif "surrogate" in error.msg:
        why = f"has half of a surrogate pair, which is no character {place}"
    elif "infinity" in error.msg:
        why = f"has a number that is too large {place}"
    else:
        why = f"is not valid JSON {place}"
    return InvalidRequest(f"{what} {why}.", code="invalid_json")
