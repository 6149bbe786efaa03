"""The body of an embeddings request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from api import rules
from api.refused_fields import refuse_fields
from api.rules import Rule
from api.shared_rules import SHARED

MAX_INPUTS: Final = 2048
"""Inputs of one request, as in the OpenAI API."""

MAX_DIMENSIONS: Final = 65_536


def check_embedding(body: Mapping[str, Any]) -> None:
    """Refuse a body that no engine could serve.

    Raises:
        InvalidRequest: With the dotted path of the first wrong field as `param`.
    """
    rules.check_fields(body, _FIELDS)
    refuse_fields(body, _FIELDS)
    rules.required(body, "model")
    rules.required(body, "input")
    if body.get("stream"):
        raise rules.wrong("stream", "embeddings are not streamed", "unsupported_parameter")


def inputs_of(body: Mapping[str, Any]) -> list[str | list[int]]:
    """The single inputs of a checked body: one string or one list of token ids each."""
    given = body["input"]
    if type(given) is str or type(given[0]) is int:
        return [given]
    return list(given)


_FIELDS: dict[str, Rule] = {
    "model": SHARED["model"],
    "input": rules.prompts(MAX_INPUTS),
    "dimensions": rules.integer(1, MAX_DIMENSIONS),
    "encoding_format": rules.one_of("float", "base64"),
    "user": SHARED["user"],
    "service_tier": SHARED["service_tier"],
    "stream": rules.boolean,
}
