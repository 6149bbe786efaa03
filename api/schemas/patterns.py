"""Patterns and formats of texts, as the engines' compiler holds them.

xgrammar reads a pattern without regard to JSON: it lets raw quotes and newlines into a string, and
reads anchors as it likes. So a pattern is rewritten to one of whole texts that need no escapes. A
text that matches as a whole matches everywhere, so each alternative may stand without its anchors.
Formats are held by the compiler, but for those that it reads too widely (`000.94.90.1`, June 31):
these become patterns.
"""

from __future__ import annotations

import re
from typing import Final

COMPILED_FORMATS: Final = frozenset({"duration", "email", "hostname", "ipv6", "uuid", "uri"})
OTHER_FORMATS: Final = frozenset({
    "idn-email", "idn-hostname", "iri", "iri-reference", "uri-reference", "uri-template",
    "json-pointer", "relative-json-pointer", "regex",
})  # fmt: skip
"""Those of JSON Schema; any other format is a note."""

_YEAR: Final = "(?:[1-9][0-9][0-9][0-9]|0[1-9][0-9][0-9]|00[1-9][0-9]|000[1-9])"
_DAY: Final = (
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
"""In any year: the last of February in a leap year is left out."""
_CLOCK: Final = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME: Final = rf"{_CLOCK}:[0-5][0-9](?:\.[0-9]{{1,6}})?(?:Z|[+-]{_CLOCK})"
_BYTE: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9][0-9]|[0-9])"
FORMAT_PATTERNS: Final = {
    "date": f"^{_YEAR}-{_DAY}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_YEAR}-{_DAY}T{_TIME}$",
    "ipv4": rf"^{_BYTE}\.{_BYTE}\.{_BYTE}\.{_BYTE}$",
}

ESCAPED_IN_JSON: Final = re.compile(r'["\\\x00-\x1f]')


def held_pattern(pattern: str) -> str | None:
    """The pattern for text that needs no escapes in JSON; None where it cannot be held."""
    if re.search(r"\(\?[^:]", pattern):
        return None  # looks around, or names groups
    if not re.fullmatch(rf"(?:{_TOKEN.pattern})*", pattern, re.DOTALL):
        return None
    made = []
    for branch in _branches(_TOKEN.findall(pattern)):
        rewritten = [_held_token(token) for token in branch]
        if None in rewritten:
            return None
        made.append("".join(map(str, rewritten)))
    return f"^{made[0]}$" if len(made) == 1 else f"^(?:{'|'.join(made)})$"


def _branches(tokens: list[str]) -> list[list[str]]:
    """The alternatives of a whole pattern, each without the anchors at its ends."""
    branches: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token in ("(", "(?:")) - (token == ")")
        if token == "|" and depth == 0:
            branches.append([])
        else:
            branches[-1].append(token)
    return [_without_anchors(branch) for branch in branches]


def _without_anchors(branch: list[str]) -> list[str]:
    if branch[:1] == ["^"]:
        branch = branch[1:]
    return branch[:-1] if branch[-1:] == ["$"] else branch


_TOKEN: Final = re.compile(r"\[(?:\\.|[^\]\\])*\]|\\.|\(\?:|[^\\\[]", re.DOTALL)
_PLAIN: Final = r'"\\\x00-\x1f'
CHAR: Final = rf"[^{_PLAIN}]"
LENGTHS: Final = re.compile(rf"\^{re.escape(CHAR)}\{{(\d+),(\d*)\}}\$")
"""What `minLength` and `maxLength` become; the compiler repeats one class cheaply."""
_CLASSES: Final = {
    ".": CHAR,
    r"\s": "[ ]",
    r"\S": r"[!#-\[\]-~]",
    r"\D": r"[ !#-/:-\[\]-~]",
    r"\W": r"[ !#-/:-@\[\]^`{-~]",
    r"\d": "[0-9]",
    r"\w": "[0-9A-Za-z_]",
}
"""Engines of regular expressions differ beyond ASCII: what all of them take."""
_ESCAPED: Final = frozenset(".-/^$*+?()[]{}|")


def _held_token(token: str) -> str | None:
    if token in _CLASSES:
        return _CLASSES[token]
    if token.startswith("["):
        if token.startswith("[^") and re.search(r"\\[dw]", token):
            return None  # beyond ASCII it is unclear what is left
        inner = token[1:-1].replace(r"\d", "0-9").replace(r"\w", "0-9A-Za-z_")
        escapes = re.findall(r"\\(.)", inner, re.DOTALL)
        if (
            not set(escapes) <= _ESCAPED
            or not inner.isascii()
            or not inner
            or inner == "^"
            or "[" in inner
        ):
            return None
        if inner.startswith("^"):
            return f"[^{_PLAIN}{inner[1:]}]"
        return (
            None
            if ESCAPED_IN_JSON.search(re.sub(r"\\.", "", inner)) or _spans(inner)
            else f"[{inner}]"
        )
    if token.startswith("\\"):
        return token if token[1] in _ESCAPED else None
    return None if token in '"^$' or token < " " else token


def _spans(inner: str) -> bool:
    """Whether a range of a class reaches over a character that JSON escapes."""
    ranges = re.findall(r"(?:\\)?(.)-(?:\\)?(.)", inner)
    return any(low <= bad <= high for low, high in ranges for bad in '"\\\x1f')
