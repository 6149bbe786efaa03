"""What is wrong with the settings, one sentence each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from service.secret_files import ServiceSettings

_WORDS = {
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "finite_number": "must be a number",
    "bool_parsing": "must be true or false",
    "greater_than": "must be greater than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "literal_error": "must be one of: {expected}",
}
"""By pydantic's name of the error. A value is never repeated: it may be a secret."""


def wrong_values(classes: Iterable[type[ServiceSettings]]) -> list[str]:
    """A sentence for each value in the environment that one of the classes refuses.

    Raises:
        SettingsError: A secret's file cannot be read.
    """
    said: dict[str, None] = {}
    for each in classes:
        try:
            each()
        except ValidationError as error:
            said |= dict.fromkeys(sentence(one) for one in error.errors())
    return list(said)


def sentence(error: Mapping[str, Any]) -> str:
    """One of pydantic's errors as a sentence that begins with the setting's name."""
    name = ".".join(str(part) for part in error["loc"])
    if name == name.lower():
        name = f"COSERVE_{name.upper()}"
    context = dict(error.get("ctx") or {})
    if "expected" in context:
        choices = str(context["expected"]).replace(" or ", ", ").replace("'", "")
        context["expected"] = ", ".join(one for one in choices.split(", ") if one)
    words = _WORDS.get(error["type"])
    why = words.format(**context) if words else str(error["msg"]).removeprefix("Value error, ")
    return f"{name}{': ' if words is None else ' '}{why}".rstrip(".") + "."
