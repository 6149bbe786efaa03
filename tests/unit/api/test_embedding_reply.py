from __future__ import annotations

import base64
import struct

import pytest

from api.embedding_reply import conforming_embedding, embedding_item
from api.usage import TokenUsage

ENGINE = {
    "object": "list",
    "model": "/some/folder",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}],
    "usage": {"prompt_tokens": 3, "total_tokens": 3, "completion_tokens": 0},
}


def test_a_reply_of_numbers() -> None:
    body, usage = conforming_embedding("m", ENGINE, None)
    assert usage == TokenUsage(prompt_tokens=3)
    assert body == {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}],
        "model": "m",
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
    }


def test_base64_is_little_endian_float32() -> None:
    encoded = embedding_item([0.5, -0.25, 1.0], 4, "base64")
    assert encoded["index"] == 4
    assert struct.unpack("<3f", base64.b64decode(encoded["embedding"])) == (0.5, -0.25, 1.0)


@pytest.mark.parametrize(
    "answer",
    [{}, {"data": []}, {"data": [{"embedding": None}]}, {"data": [{"embedding": ["x"]}]}],
    ids=str,
)
def test_an_answer_without_a_vector_is_no_reply(answer: dict[str, object]) -> None:
    with pytest.raises((LookupError, TypeError, struct.error)):
        conforming_embedding("m", answer, "base64")
