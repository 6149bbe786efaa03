"""Valid requests, and how they are broken: in their structure and in their bytes."""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any

import orjson

from tests.integration.security.conftest import CANARY, MODEL

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 1 << 31, 1 << 62, -(1 << 63), 1e308, -0.0, 5e-324, "", "x",
    "\0", "\x1b[2J", "é😀", "\ud800".encode("utf-16", "surrogatepass").hex(), "a" * 5_000,
    "' OR 1=1 --", "../../etc/passwd", "${jndi:x}", "%s%n", [], {}, [[]], [None], [{}], {"": ""},
    {"role": "user"}, {"type": "function"}, {"a": {"b": []}}, ["a"] * 9, [1, 2], "text", "NaN",
)  # fmt: skip

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
_MESSAGES = [
    {"role": "system", "content": CANARY},
    {"role": "user", "content": [{"type": "text", "text": CANARY}]},
]
CHAT: dict[str, Any] = {
    "model": MODEL, "messages": _MESSAGES, "max_tokens": 2, "temperature": 0.5, "top_p": 1,
    "n": 1, "stop": ["a"], "logprobs": True, "top_logprobs": 1, "seed": 1, "user": "u",
    "logit_bias": {"5": 1}, "metadata": {"k": CANARY}, "tools": [TOOL], "tool_choice": "auto",
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
    "stream": False, "service_tier": "auto", "reasoning_effort": "low", "frequency_penalty": 0,
    "chat_template_kwargs": {"enable_thinking": False},
}  # fmt: skip
COMPLETION: dict[str, Any] = {
    "model": MODEL, "prompt": CANARY, "max_tokens": 2, "echo": False, "best_of": 1, "n": 1,
    "suffix": None, "logprobs": 1, "stream": True, "stream_options": {"include_usage": True},
}  # fmt: skip
EMBEDDING: dict[str, Any] = {
    "model": MODEL, "input": [CANARY], "dimensions": 4, "encoding_format": "float",
}  # fmt: skip
BATCH: dict[str, Any] = {
    "input_file_id": "file-0123456789abcdef01234567", "endpoint": "/v1/chat/completions",
    "completion_window": "24h", "metadata": {"k": CANARY},
    "output_expires_after": {"anchor": "created_at", "seconds": 3600},
}  # fmt: skip
SEEDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", {"model": MODEL, "messages": _MESSAGES, "stream": True}),
    ("/chat/completions", {"model": MODEL, "messages": _MESSAGES, "max_tokens": 1}),
    ("/v1/completions", COMPLETION),
    ("/v1/embeddings", EMBEDDING),
    ("/v1/batches", BATCH),
    ("/v1/batches/check", BATCH),
    ("/v1/batches/batch_0123/cancel", {}),
    ("/v1/batches/batch_0123/priority", {"priority": 1}),
    ("/v1/batches/batch_0123/retry", {}),
    ("/v1/webhook_endpoints", {"url": "https://example.com/x", "event_types": ["batch.failed"]}),
)


def broken_structure(source: random.Random, seed: dict[str, Any]) -> dict[str, Any]:
    """A body with one to four of its values, at any depth, replaced, removed or added."""
    body = deepcopy(seed)
    for _ in range(source.randint(1, 4)):
        place: Any = body
        while True:
            if isinstance(place, dict) and place:
                key: Any = source.choice([*place])
            elif isinstance(place, list) and place:
                key = source.randrange(len(place))
            else:
                break
            if isinstance(place[key], dict | list) and source.random() < 0.6:
                place = place[key]
                continue
            match source.randrange(4):
                case 0:
                    del place[key]
                case 1 if isinstance(place, dict):
                    place[source.choice(("rid", "priority", "x", "n", "\0", "stream"))] = (
                        source.choice(ODD)
                    )
                case 2:
                    place[key] = [place[key]] * source.randint(0, 3)
                case _:
                    place[key] = deepcopy(source.choice(ODD))
            break
    return body


def nested(source: random.Random, seed: dict[str, Any]) -> bytes:
    """A body with something deep in one of its places; libraries' own limits are lower."""
    body = deepcopy(seed)
    place: Any = body
    if body.get("messages") and source.random() < 0.7:
        place = source.choice(body["messages"])
    place[source.choice(("content", "x", "metadata", "tools", "prompt", "name"))] = "@deep@"
    depth = source.choice((10, 60, 70, 200, 300, 900, 3_000))
    opened, closed = source.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")))
    deep = opened * depth + orjson.dumps(CANARY) + closed * depth
    return orjson.dumps(body).replace(b'"@deep@"', deep)


def broken_bytes(source: random.Random, raw: bytes) -> bytes:
    """Bytes flipped, cut, doubled, swapped or spliced with what parsers dislike."""
    data = bytearray(raw)
    for _ in range(source.randint(1, 6)):
        at = source.randrange(len(data) + 1)
        match source.randrange(6):
            case 0 if at < len(data):
                data[at] = source.randrange(256)
            case 1:
                del data[at : at + source.randint(1, 20)]
            case 2:
                data[at:at] = data[at : at + source.randint(1, 40)]
            case 3:
                del data[at:]
            case 4:
                data[at:at] = source.choice(SPLICES)
            case _:
                data[at:at] = bytes(source.randrange(256) for _ in range(source.randint(1, 8)))
        if not data:
            data += b"\0"
    return bytes(data)


SPLICES = (
    b"\0", b"\r\n", b"\r\n\r\n", b"--", b'"', b"\\", b"\\ud800", b"[[[[", b"{" * 80, b"}", b"NaN",
    b"-Infinity", b"1e999", b"\xff\xfe", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"9" * 400, b": ",
    b",,", b"Content-Disposition: form-data", b"--b0und", b"--b0und--", b"%00", b"name=",
)  # fmt: skip


def some_json(source: random.Random) -> tuple[str, bytes]:
    """A path and the bytes of a body."""
    path, seed = source.choice(SEEDS)
    choice = source.random()
    if choice < 0.55:
        raw = orjson.dumps(broken_structure(source, seed))
    elif choice < 0.65:
        raw = nested(source, seed)
    else:
        raw = broken_bytes(source, orjson.dumps(seed))
    return path, raw


_FORM = (
    b'--b0und\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    b'--b0und\r\nContent-Disposition: form-data; name="expires_after[anchor]"\r\n\r\n'
    b"created_at\r\n"
    b'--b0und\r\nContent-Disposition: form-data; name="expires_after[seconds]"\r\n\r\n3600\r\n'
    b'--b0und\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n'
    b"Content-Type: application/jsonl\r\n\r\n" + b'{"custom_id": "1"}\n' * 3 + b"\r\n--b0und--\r\n"
)
CONTENT_TYPES = (
    "multipart/form-data; boundary=b0und",
    'multipart/form-data; boundary="b0und"',
    "multipart/form-data",
    "multipart/form-data; boundary=",
    "multipart/form-data; boundary=" + "x" * 300,
    "multipart/mixed; boundary=b0und",
    "application/x-www-form-urlencoded",
    "",
)


def some_form(source: random.Random) -> tuple[str, bytes]:
    """A content type and the bytes of a form."""
    kind = CONTENT_TYPES[0] if source.random() < 0.85 else source.choice(CONTENT_TYPES)
    return kind, broken_bytes(source, _FORM) if source.random() < 0.95 else _FORM
