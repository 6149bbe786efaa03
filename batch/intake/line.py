"""One line of a batch input file, judged on its own (rows B-13 to B-19).

Pure: bytes in, a `ParsedLine` out. What needs other lines (duplicates, one model per batch) is
the business of `batch.check`. Every fault of a line is reported, not only its first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import orjson

from api.embedding_request import inputs_of
from api.errors import InvalidRequest
from api.json_input import NotUtf8, read
from api.mapped_fields import mapped
from api.numbers import UNKNOWN, ModelSizes
from api.shared_rules import SHARED
from batch.intake.body import check_body
from batch.intake.line_error import LineError, LineNotes, json_type
from engine_adapter.client.base import (
    CHAT_PATH,
    COMPLETIONS_PATH,
    EMBEDDINGS_PATH,
    RESPONSES_PATH,
)
from engine_adapter.client.estimate import answer_limit, prompt_tokens

ENDPOINTS: Final = (CHAT_PATH, COMPLETIONS_PATH, EMBEDDINGS_PATH, RESPONSES_PATH)
"""What a row may call."""

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
MAX_CUSTOM_ID_CHARS: Final = 512
MAX_MODEL_CHARS: Final = 256

_OF_BODY: Final = (SHARED.keys() - {"metadata", "user"}) | {
    "messages", "prompt", "input", "instructions", "tools", "tool_choice", "max_completion_tokens",
    "max_output_tokens", "logprobs", "top_logprobs", "dimensions", "reasoning_effort", "reasoning",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ParsedLine:
    """What one line says.

    Attributes:
        line_no: 1-based physical line.
        offset: Where its JSON begins in the file, bytes.
        length: Bytes of its JSON, line end and BOM excluded.
        custom_id: The caller's name for it, if it is a legal one.
        model: The model it asks for, if it names one.
        num_inputs: Embedding inputs of a faultless line; 1 for other endpoints.
        num_tokens: About how many tokens its prompt has; 0 for a line that cannot run.
        prefix: The first `PREFIX_CHARS` characters of its prompt.
        faults: Everything wrong with it; empty for a line that can run.
        digest: Of its body, where equal bodies get equal answers.
        answer_limit: Most tokens of its answers together; None where that is left open.
    """

    line_no: int
    offset: int
    length: int
    custom_id: str | None
    model: str | None
    num_inputs: int
    num_tokens: int
    prefix: str
    faults: tuple[LineError, ...]
    digest: bytes | None = None
    answer_limit: int | None = None


def parse_line(
    raw: bytes,
    *,
    line_no: int,
    offset: int,
    endpoint: str,
    sizes: Mapping[str, ModelSizes] = {},
) -> ParsedLine:
    """Judge one line.

    Args:
        raw: The line's JSON, without line end and BOM.
        line_no: 1-based physical line.
        offset: Where `raw` begins in the file, bytes.
        endpoint: The batch's endpoint; the line's `url` must be the same.
        sizes: What is known of models.
    """
    notes = LineNotes(line_no)
    custom_id: str | None = None
    model: str | None = None
    num_inputs, num_tokens, prefix, digest, limit = 1, 0, "", None, None
    line = _decode(raw, notes)
    if line is not None:
        _check_keys(line, notes)
        custom_id = _custom_id(line, notes)
        _check_method(line, notes)
        _check_url(line, endpoint, notes)
        body = line.get("body")
        if isinstance(body, dict):
            model = _model(body, notes)
            body = _in_our_words(body, endpoint, notes)
            prefix = check_body(body, endpoint, notes, sizes.get(model or "", UNKNOWN))
            if not notes.faults:
                num_tokens = prompt_tokens(endpoint, body)
                digest = _digest(endpoint, body)
                limit = _answer_limit(endpoint, body)
                if endpoint == EMBEDDINGS_PATH:
                    num_inputs = len(inputs_of(body))
        elif "body" not in line:
            notes.missing("body")
        else:
            notes.wrong_type("body", "an object", body)
    faults = tuple(notes.faults)
    return ParsedLine(
        line_no,
        offset,
        len(raw),
        custom_id,
        model,
        num_inputs,
        num_tokens,
        prefix,
        faults,
        digest,
        limit,
    )


def _answer_limit(endpoint: str, body: dict[str, Any]) -> int | None:
    limit = answer_limit(endpoint, body)
    return None if limit is None else limit * (body.get("n") or 1)


def _digest(endpoint: str, body: dict[str, Any]) -> bytes | None:
    """None where two answers to one body are two draws: no seed, and a temperature above 0."""
    if endpoint != EMBEDDINGS_PATH and body.get("temperature") != 0 and body.get("seed") is None:
        return None
    return blake2b(orjson.dumps(body, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


def read_body(raw: bytes) -> dict[str, Any]:
    """The `body` of a line that was found valid; what is sent to the engine."""
    line = orjson.loads(raw)
    return mapped(line["url"], line["body"])


def _in_our_words(body: dict[str, Any], endpoint: str, notes: LineNotes) -> dict[str, Any]:
    try:
        return mapped(endpoint, body)
    except InvalidRequest as refused:
        notes.add(refused.code or "invalid_value", refused.message, f"body.{refused.param}")
        return body


def _decode(raw: bytes, notes: LineNotes) -> dict[str, Any] | None:
    try:
        line = read(raw, "This line")
    except InvalidRequest as refused:
        code = "invalid_utf8" if isinstance(refused, NotUtf8) else str(refused.code)
        code = "invalid_json_line" if code == "invalid_json" else code
        notes.add(code, refused.message, None)
        return None
    if not isinstance(line, dict):
        kind = json_type(line)
        notes.add("invalid_json_line", f"A line must be a JSON object, not {kind}.", None)
        return None
    return line


def _check_keys(line: dict[str, Any], notes: LineNotes) -> None:
    """Other keys are the caller's notes, but for one that was meant for the model."""
    for key in sorted(_OF_BODY.intersection(line)):
        if line[key] is not None:
            notes.add("unknown_parameter", f"'{key}' is read inside 'body' alone.", key)


def _custom_id(line: dict[str, Any], notes: LineNotes) -> str | None:
    custom_id = line.get("custom_id")
    if custom_id is None:
        notes.missing("custom_id")
    elif not isinstance(custom_id, str):
        notes.wrong_type("custom_id", "a string", custom_id)
    elif not custom_id or len(custom_id) > MAX_CUSTOM_ID_CHARS or "\0" in custom_id:
        notes.add(
            "invalid_custom_id",
            f"'custom_id' must have 1 to {MAX_CUSTOM_ID_CHARS} characters and no NUL.",
            "custom_id",
        )
    else:
        return custom_id
    return None


def _check_method(line: dict[str, Any], notes: LineNotes) -> None:
    if "method" not in line:
        notes.missing("method")
    elif line["method"] != "POST":
        notes.add("invalid_method", "'method' must be \"POST\".", "method")


def _check_url(line: dict[str, Any], endpoint: str, notes: LineNotes) -> None:
    if "url" not in line:
        notes.missing("url")
    elif line["url"] != endpoint:
        notes.add("invalid_url", f"'url' must be the batch's endpoint, '{endpoint}'.", "url")


def _model(body: dict[str, Any], notes: LineNotes) -> str | None:
    model = body.get("model")
    if model is None:
        notes.missing("body.model")
    elif not isinstance(model, str):
        notes.wrong_type("body.model", "a string", model)
    elif not model or "\0" in model:
        notes.wrong_value("body.model", "must not be empty and must not hold NUL")
    elif len(model) > MAX_MODEL_CHARS:
        notes.wrong_value("body.model", f"must have at most {MAX_MODEL_CHARS} characters")
    else:
        return model
    return None
