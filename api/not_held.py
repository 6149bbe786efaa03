"""What a reply says of fields that its engine could not follow, and was not asked to.

chat, completions    the header `x-not-held`
a row's result       `not_held` beside the status
a response           `warnings`, and the header where there is one
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from urllib.parse import quote

HEADER: Final = "x-not-held"
MAX_NAMES: Final = 16
MAX_NAME_CHARS: Final = 128
_RESPONSE_NAMES: Final = {"schema": "text.format.schema"}


def listed(names: Collection[str]) -> list[str]:
    """The names in order, as many and as long as a reply tells."""
    return [name[:MAX_NAME_CHARS] for name in sorted(names)[:MAX_NAMES]]


def header(names: Collection[str]) -> dict[str, str]:
    """The header of a reply; none where everything was followed."""
    told = [quote(name, safe="[].$") for name in listed(names)]
    return {HEADER: ", ".join(told)} if told else {}


def warnings(names: Collection[str]) -> list[dict[str, str]]:
    """The warnings of a response, under the names of its own body."""
    return [_warning(name) for name in listed(names)]


def _warning(name: str) -> dict[str, str]:
    field, dot, path = name.partition(".")
    param = f"{_RESPONSE_NAMES.get(field, field)}{dot}{path}"
    message = f"The model's engine cannot follow '{param}'; the response was made without it."
    return {"code": "not_held", "param": param, "message": message}
