"""Lines of output and error files (rows R-08 to R-15).

Which file a line belongs to is decided by its builder: a success goes to the output file,
everything else to the error file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import orjson

from api.json_output import dump
from api.not_held import listed
from api.usage import TokenUsage

EXPIRED_CODE: Final = "batch_expired"
EXPIRED_MESSAGE: Final = "This request could not be executed before the completion window expired."
CANCELLED_CODE: Final = "batch_cancelled"
CANCELLED_MESSAGE: Final = "This request was not executed because the batch was cancelled."
NOT_STORABLE_CODE: Final = "answer_not_storable"
NOT_STORABLE_MESSAGE: Final = "The engine answered, and the database refuses to keep the answer."


def line_id(row_id: int) -> str:
    """The wire id of a row's line; unique because the row's key is."""
    return f"batch_req_{row_id:016x}"


def http_line(
    row_id: int,
    custom_id: str,
    *,
    status_code: int,
    request_id: str,
    body: Mapping[str, Any],
    not_held: Collection[str] = (),
) -> bytes:
    """The line of a row that an engine answered, with a success or with an error envelope.

    Args:
        row_id: Key of the row.
        custom_id: The caller's name for the row.
        status_code: HTTP status, 200 to 599.
        request_id: Public id of the call, `req_...`.
        body: The reply as the online endpoint would have given it: an object, never a string.
        not_held: Fields that the engine could not follow.

    Returns:
        One JSON object, UTF-8, without the final newline.

    Raises:
        ValueError: A status that no HTTP reply has (row R-32).
    """
    if not 200 <= status_code <= 599:
        raise ValueError(f"not the status of an answer: {status_code}")
    response = {"status_code": status_code, "request_id": request_id, "body": body}
    if told := listed(not_held):
        response["not_held"] = told
    return _line(row_id, custom_id, response, None)


def failure_line(row_id: int, custom_id: str, *, code: str, message: str) -> bytes:
    """The line of a row that no engine answered: expired, cancelled, or given up.

    Returns:
        One JSON object, UTF-8, without the final newline.
    """
    return _line(row_id, custom_id, None, {"code": code, "message": message})


def expired_line(row_id: int, custom_id: str) -> bytes:
    """The line of a row still open when the completion window ended (row R-11)."""
    return failure_line(row_id, custom_id, code=EXPIRED_CODE, message=EXPIRED_MESSAGE)


def cancelled_line(row_id: int, custom_id: str) -> bytes:
    """The line of a row still open when its batch was cancelled (row R-12)."""
    return failure_line(row_id, custom_id, code=CANCELLED_CODE, message=CANCELLED_MESSAGE)


def repeated_line(line: bytes, row_id: int, custom_id: str) -> tuple[bytes, TokenUsage]:
    """The line of a row that is given the answer of another, and its tokens.

    Args:
        line: The other row's line.
        row_id: Key of the row.
        custom_id: The caller's name for the row.

    Returns:
        The same answer under the row's own names, its prompt all cached: nothing was computed.
    """
    told = orjson.loads(line)
    usage = ((told["response"] or {}).get("body") or {}).get("usage") or {}
    for prompt, answer in (("prompt", "completion"), ("input", "output")):
        details = usage.get(f"{prompt}_tokens_details")
        if details is None:
            continue
        num_prompt = usage[f"{prompt}_tokens"]
        details["cached_tokens"] = num_prompt
        reasoning = usage[f"{answer}_tokens_details"]["reasoning_tokens"]
        tokens = TokenUsage(num_prompt, usage[f"{answer}_tokens"], num_prompt, reasoning)
        break
    else:
        num_prompt = usage.get("prompt_tokens", 0)
        tokens = TokenUsage(num_prompt, 0, num_prompt)
    return _line(row_id, custom_id, told["response"], told["error"]), tokens


def _line(
    row_id: int,
    custom_id: str,
    response: Mapping[str, Any] | None,
    error: Mapping[str, Any] | None,
) -> bytes:
    return dump(
        {"id": line_id(row_id), "custom_id": custom_id, "response": response, "error": error}
    )
