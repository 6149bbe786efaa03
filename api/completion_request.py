"""The body of a completion request (rows L-03 to L-08)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from api import rules
from api.rules import Rule
from api.shared_rules import MAX_CHOICES, SHARED, check_shared

DEFAULT_MAX_TOKENS = 16

_OTHER_NAMES: Final = {
    "input": "prompt",
    "messages": "prompt",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "top_logprobs": "logprobs",
}


def check_completion(body: Mapping[str, Any]) -> None:
    """Refuse a body that no engine could serve.

    Raises:
        InvalidRequest: With the dotted path of the first wrong field as `param`.
    """
    rules.check_fields(body, _FIELDS)
    check_shared(body, _FIELDS, _OTHER_NAMES, longest=DEFAULT_MAX_TOKENS)
    rules.required(body, "prompt")
    num_choices = body.get("n") or 1
    best_of = body.get("best_of")
    if best_of is not None and best_of > num_choices:
        raise rules.wrong("best_of", "this service returns every choice it makes: use 'n'")
    if best_of is not None and best_of < num_choices:
        raise rules.wrong("best_of", "must not be less than 'n'")
    if body.get("suffix"):
        raise rules.wrong("suffix", "not supported by this service", "unsupported_parameter")
    if body.get("max_tokens") == 0 and (not body.get("echo") or body.get("logprobs") is None):
        raise rules.wrong("max_tokens", "may be 0 only to score a prompt: 'echo' and 'logprobs'")
    if body.get("max_tokens") == 0 and body.get("stream"):
        raise rules.wrong("stream", "the score of a prompt comes whole")
    if len(prompts_of(body)) * num_choices > MAX_CHOICES:
        raise rules.wrong("n", f"prompts times choices may be {MAX_CHOICES} at most")


def only_scores(body: Mapping[str, Any]) -> bool:
    """Whether a checked body asks for the log probabilities of its prompt and no answer.

    Engines make one token at least: it is asked for, and taken off the reply.
    """
    return body.get("max_tokens") == 0


def only_sampled(body: Mapping[str, Any]) -> bool:
    """Whether a checked body asks for the log probabilities of no tokens but its own."""
    return body.get("logprobs") == 0


def prompts_of(body: Mapping[str, Any]) -> list[str | list[int]]:
    """The single prompts of a checked body: one string or one list of token ids each."""
    prompt = body["prompt"]
    if type(prompt) is str:
        return [prompt]
    if type(prompt[0]) is int:
        return [prompt]
    return list(prompt)


_FIELDS: dict[str, Rule] = {
    **SHARED,
    "prompt": rules.prompts(MAX_CHOICES),
    "max_tokens": rules.integer(0),
    "logprobs": rules.integer(0, 5),
    "echo": rules.boolean,
    "best_of": rules.integer(0, 20),
    "suffix": rules.string(),
}
