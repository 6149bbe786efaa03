"""Rules that chat and completions share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from api import rules
from api.refused_fields import refuse_fields
from api.rules import Rule
from api.schemas import forms

MAX_CHOICES = 128

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Of reasoning; engines know no `max`, which is `xhigh` there."""

SERVICE_TIERS = ("auto", "default", "flex", "scale", "priority", "fast")
SERVED_TIERS = ("default", "flex")
"""Those that differ here, the first to be served first: what a default tier may be."""

SHARED: dict[str, Rule] = {
    "model": rules.string(256),
    "temperature": rules.number(0, 2),
    "top_p": rules.number(0, 1),
    "presence_penalty": rules.number(-2, 2),
    "frequency_penalty": rules.number(-2, 2),
    "n": rules.integer(1, MAX_CHOICES),
    "max_tokens": rules.integer(1),
    "stop": rules.stop,
    "seed": rules.integer(rules.MIN_INT64, rules.MAX_INT64),
    "logit_bias": rules.logit_bias,
    "stream": rules.boolean,
    "stream_options": rules.stream_options,
    "user": rules.string(),
    "safety_identifier": rules.string(64),
    "metadata": rules.metadata,
    "store": rules.boolean,
    "service_tier": rules.one_of(*SERVICE_TIERS),
    "prompt_cache_key": rules.string(),
    "response_format": forms.response_format,
    "top_k": rules.top_k,
    "min_p": rules.number(0, 1),
    "min_tokens": rules.integer(0),
    "repetition_penalty": rules.repetition_penalty,
    "regex": forms.regex,
    "ebnf": forms.ebnf,
    "modalities": rules.array_of(rules.one_of("text"), min_items=1, max_items=1),
    "ignore_eos": rules.boolean,
    "skip_special_tokens": rules.boolean,
    "stop_token_ids": rules.array_of(rules.integer(0, rules.MAX_TOKEN_ID), max_items=64),
}


def check_shared(
    body: Mapping[str, Any],
    served: Collection[str],
    names: Mapping[str, str],
    *,
    longest: int | None = None,
) -> None:
    """What holds for both endpoints beyond single fields (rows C-28, C-30, T-28).

    Args:
        body: Of a request.
        served: The names that have rules.
        names: What is called otherwise at this endpoint: the name elsewhere to the one here.
        longest: Tokens of an answer whose length is left open; None: what the context leaves.
    """
    refuse_fields(body, served, names)
    forms.check_one_form(body)
    _lengths(body, longest)
    rules.required(body, "model")
    if body.get("stream_options") is not None and not body.get("stream"):
        raise rules.wrong("stream_options", "only allowed when 'stream' is true")


def _lengths(body: Mapping[str, Any], longest: int | None) -> None:
    """An answer cannot be shorter than it must be."""
    for name in ("max_completion_tokens", "max_tokens"):
        if body.get(name) is not None:
            longest = body[name]
            break
    if longest is not None and (body.get("min_tokens") or 0) > longest:
        raise rules.wrong("min_tokens", f"must be at most the answer's longest length, {longest}")
