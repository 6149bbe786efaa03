"""Parts of a request's head that are parsed once more, and how long they may be for that.

Frameworks parse them in Python, some in steps whose number grows with the square of the length: on
the loop that all share, a type of 30 KB in semicolons was a second of work, and a cookie of 30 KB
in backslashes, which every route reads, four to five.
"""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

from api.errors import InvalidRequest, UnsupportedMediaType

MAX_PARAMETERS: Final = 512
"""In a query: lists of some routes may have a hundred items each."""

MAX_TYPE_BYTES: Final = 1024
MAX_TYPE_OPTIONS: Final = 16
MAX_COOKIE_ESCAPES: Final = 64


def check_head(scope: Scope) -> None:
    """Refuse a head whose query, type or cookie is work to parse.

    Raises:
        InvalidRequest: The query has too many parameters, or the cookie too many escapes.
        UnsupportedMediaType: The type of the body is longer than any that there is.
    """
    if scope["query_string"].count(b"&") >= MAX_PARAMETERS:
        raise InvalidRequest(f"The URL may have {MAX_PARAMETERS} parameters at most.")
    for name, value in scope["headers"]:
        if name == b"content-type" and (
            len(value) > MAX_TYPE_BYTES or value.count(b";") > MAX_TYPE_OPTIONS
        ):
            raise UnsupportedMediaType("The Content-Type header is too long.")
        if name == b"cookie" and value.count(b"\\") > MAX_COOKIE_ESCAPES:
            raise InvalidRequest(
                f"The Cookie header may have {MAX_COOKIE_ESCAPES} backslashes at most."
            )
