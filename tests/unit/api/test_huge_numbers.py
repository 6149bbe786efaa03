"""Whole numbers of any size are told true words; the parser makes floats of the largest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson
import pytest

from api.chat_request import check_chat
from api.completion_request import check_completion
from api.embedding_request import check_embedding
from api.errors import InvalidRequest
from api.responses.request import check_response
from batch.intake.body import check_body
from batch.intake.line_error import LineNotes

HUGE = [2**31, 2**63, 2**64, 10**30, -(2**31), -(2**63) - 1, -(10**30)]
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
TEXT = {"model": "m", "prompt": "hi"}
CHECKS: dict[str, tuple[Callable[[Any], Any], dict[str, Any], tuple[str, ...]]] = {
    "/v1/chat/completions": (check_chat, CHAT, ("max_tokens", "max_completion_tokens", "n")),
    "/v1/completions": (check_completion, TEXT, ("max_tokens", "n", "logprobs", "best_of")),
    "/v1/responses": (check_response, {"model": "m", "input": "hi"}, ("max_output_tokens",)),
    "/v1/embeddings": (check_embedding, {"model": "m", "input": "hi"}, ("dimensions",)),
}
CASES = [(path, name) for path, (_, _, names) in CHECKS.items() for name in names] + [
    ("/v1/chat/completions", name) for name in ("min_tokens", "top_k", "top_logprobs")
]


def words_of(path: str, body: Mapping[str, Any]) -> tuple[str, str | None]:
    with pytest.raises(InvalidRequest) as refused:
        CHECKS[path][0](body)
    return refused.value.message, refused.value.param


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize(("path", "name"), CASES)
def test_too_large_is_said(path: str, name: str, number: int) -> None:
    whole = orjson.dumps({**CHECKS[path][1], name: 0})
    body = orjson.loads(whole.replace(b":0", b":%d" % number))
    message, param = words_of(path, body)
    assert param == name
    assert "integer" not in message
    if number > 0:
        assert "at least" not in message
    if not path.endswith("embeddings"):
        notes = LineNotes(1)
        check_body(body, path, notes)
        assert notes.faults
        assert all("integer" not in fault.message for fault in notes.faults)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/embeddings"])
@pytest.mark.parametrize("number", [2**63, 2**64, 10**30])
def test_ids_of_tokens(path: str, number: int) -> None:
    field = "prompt" if path.endswith("completions") else "input"
    body = orjson.loads(b'{"model":"m","%b":[%d]}' % (field.encode(), number))
    message, param = words_of(path, body)
    assert param == f"{field}[0]"
    assert "between 0 and" in message or "at most" in message
