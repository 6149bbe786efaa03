"""Rules about single fields of a request body.

A rule takes the field's name and value and raises `InvalidRequest` naming it; null is unset and
never reaches a rule. Messages describe the rule and never repeat the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from api.errors import InvalidRequest
from api.objects import only

Rule = Callable[[str, Any], None]

MIN_INT64, MAX_INT64 = -(1 << 63), (1 << 63) - 1
MAX_INT32 = (1 << 31) - 1
MAX_TOKEN_ID = (1 << 20) - 1
"""No vocabulary is larger; an engine's own size is held to where it is known (`numbers`)."""


def wrong(name: str, what: str, code: str = "invalid_value") -> InvalidRequest:
    """The error for one field."""
    return InvalidRequest(f"Invalid value for '{name}': {what}.", param=name, code=code)


def wrong_type(name: str, expected: str) -> InvalidRequest:
    """The error for a field of the wrong type."""
    return InvalidRequest(
        f"Invalid type for '{name}': expected {expected}.", param=name, code="invalid_type"
    )


def number(low: float, high: float) -> Rule:
    """A number between two bounds, both included."""

    def rule(name: str, value: Any) -> None:
        if type(value) not in (int, float):
            raise wrong_type(name, "a number")
        if not low <= value <= high:
            raise wrong(name, f"must be between {low:g} and {high:g}")

    return rule


def is_whole(value: Any) -> bool:
    """Whether it is a whole number; the parser makes those beyond 64 bits floats."""
    return type(value) is int or (type(value) is float and abs(value) >= MAX_INT64)


def integer(low: int, high: int = MAX_INT32) -> Rule:
    """A whole number between two bounds, both included."""

    def rule(name: str, value: Any) -> None:
        if not is_whole(value):
            raise wrong_type(name, "an integer")
        if not low <= value <= high:
            raise wrong(name, f"must be at most {high}" if value > high else f"must be {bounds}")

    bounds = f"at least {low}" if high >= MAX_INT32 else f"between {low} and {high}"
    return rule


repetition_penalty: Final = number(0.01, 2)
"""Logits are divided by it: by less they may overflow, and sampling fails for the whole step."""


def top_k(name: str, value: Any) -> None:
    """-1 for all tokens, or how many of the likeliest."""
    integer(-1)(name, value)
    if value == 0:
        raise wrong(name, "must be -1 for all tokens, or at least 1")


def boolean(name: str, value: Any) -> None:
    if type(value) is not bool:
        raise wrong_type(name, "a boolean")


def string(max_chars: int | None = None) -> Rule:
    """A string, perhaps of limited length."""

    def rule(name: str, value: Any) -> None:
        if type(value) is not str:
            raise wrong_type(name, "a string")
        if max_chars is not None and len(value) > max_chars:
            raise wrong(name, f"must be at most {max_chars} characters long")

    return rule


def name(path: str, value: Any) -> None:
    """What a model calls a function by; some letters of OpenAI's rule are not asked for."""
    string(64)(path, value)
    if not value.strip():
        raise wrong(path, "must not be empty")


def one_of(*words: str) -> Rule:
    """One of a few words."""

    def rule(name: str, value: Any) -> None:
        if type(value) is not str:
            raise wrong_type(name, "a string")
        if value not in words:
            raise wrong(name, f"must be one of {', '.join(words)}")

    return rule


def obj(name: str, value: Any) -> None:
    if type(value) is not dict:
        raise wrong_type(name, "an object")


def array_of(rule: Rule, *, min_items: int = 0, max_items: int | None = None) -> Rule:
    """An array whose items follow a rule."""

    def check(name: str, value: Any) -> None:
        if type(value) is not list:
            raise wrong_type(name, "an array")
        if len(value) < min_items:
            raise wrong(name, f"must have at least {min_items} item(s)")
        if max_items is not None and len(value) > max_items:
            raise wrong(name, f"must have at most {max_items} items")
        for i, item in enumerate(value):
            rule(f"{name}[{i}]", item)

    return check


def token_ids(name: str, value: Any) -> None:
    """An array of token ids; looked at as a whole, and one by one only to name a wrong one."""
    all_integers = type(value) is list and set(map(type, value)) == {int}
    if not (all_integers and min(value) >= 0 and max(value) <= MAX_TOKEN_ID):
        array_of(integer(0, MAX_TOKEN_ID), min_items=1)(name, value)


def prompts(max_items: int) -> Rule:
    """A text, an array of token ids, or an array of texts or of arrays of token ids.

    The first item of an array says which it is.
    """
    texts, tokens = array_of(_text, max_items=max_items), array_of(token_ids, max_items=max_items)
    by_first = {str: texts, list: tokens, int: token_ids, float: token_ids}

    def rule(name: str, value: Any) -> None:
        if type(value) is str:
            _text(name, value)
        elif type(value) is not list:
            raise wrong_type(name, "a string, an array of strings or of token ids")
        elif not value:
            raise wrong(name, "must not be empty")
        elif type(value[0]) in by_first:
            by_first[type(value[0])](name, value)
        else:
            raise wrong_type(f"{name}[0]", "a string, a token id or an array of token ids")

    return rule


def stop(name: str, value: Any) -> None:
    """A text, or one to four of them, none empty: an empty one ends every answer (C-16)."""
    if type(value) is list:
        array_of(_text, min_items=1, max_items=4)(name, value)
    elif type(value) is str:
        _text(name, value)
    else:
        raise wrong_type(name, "a string or an array of strings")


def _text(name: str, value: Any) -> None:
    string()(name, value)
    if not value:
        raise wrong(name, "must not be empty")


_TOKEN_DIGITS = len(str(MAX_TOKEN_ID))


def logit_bias(name: str, value: Any) -> None:
    """Token ids to a bias between -100 and 100 (row C-18)."""
    obj(name, value)
    in_range = number(-100, 100)
    for token, bias in value.items():
        if not (token.isascii() and token.isdigit() and len(token) <= _TOKEN_DIGITS):
            raise wrong(name, "its keys must be token ids")
        in_range(f"{name}.{token}", bias)


def metadata(name: str, value: Any) -> None:
    """Up to 16 pairs of short strings (rows C-23, C-24, B-06)."""
    obj(name, value)
    if len(value) > 16:
        raise wrong(name, "must have at most 16 pairs")
    for key, item in value.items():
        if len(key) > 64:
            raise wrong(name, "its keys must be at most 64 characters long")
        string(512)(f"{name}.{key}", item)


def stream_options(name: str, value: Any) -> None:
    """`stream_options`: only known names, each a boolean (row S-11)."""
    obj(name, value)
    only(name, value, "stream options")
    for option in ("include_usage", "include_obfuscation"):
        if value.get(option) is not None:
            boolean(f"{name}.{option}", value[option])


def check_fields(body: Mapping[str, Any], rules: Mapping[str, Rule]) -> None:
    """Apply each rule to its field where the field is set."""
    for name in rules.keys() & body.keys():
        value = body[name]
        if value is not None:
            rules[name](name, value)


def required(body: Mapping[str, Any], name: str) -> Any:
    """The value of a field that must be set."""
    value = body.get(name)
    if value is None:
        raise InvalidRequest(
            f"Missing required parameter: '{name}'.",
            param=name,
            code="missing_required_parameter",
        )
    return value
