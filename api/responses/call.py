"""The chat call of a response that goes on from nothing stored: of a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from api.chat_request import check_chat
from api.errors import InvalidRequest
from api.responses.items import is_reference, listed, messages_of
from api.responses.request import chat_body, check_response, renamed

NOT_ALONE: Final = ("previous_response_id", "conversation", "background")
"""Fields of what is stored; a row is answered and nothing else."""


def check_alone(body: Mapping[str, Any]) -> None:
    """Refuse a body that cannot be served, or needs what is stored.

    Raises:
        InvalidRequest: With the dotted path of the first wrong field as `param`.
    """
    check_response(body)
    for name in NOT_ALONE:
        if body.get(name):
            raise InvalidRequest(
                f"'{name}' is not supported in a batch: its lines are not stored.",
                param=name,
                code="unsupported_parameter",
            )
    items = listed(body["input"], "")
    for place, item in enumerate(items):
        if is_reference(item):
            raise InvalidRequest(
                "A line of a batch cannot refer to a stored item.",
                param=f"input[{place}]",
                code="unsupported_parameter",
            )
    try:
        check_chat(chat_call(body))
    except InvalidRequest as refused:
        raise renamed(refused, body) from None


def chat_call(body: Mapping[str, Any]) -> dict[str, Any]:
    """The chat call that makes the response of a body `check_alone` let through."""
    return chat_body(body, messages_of(listed(body["input"], ""), body.get("instructions")))
