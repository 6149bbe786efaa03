"""`python -m tests.architecture.wrap PAGE...` breaks the paragraphs of pages that are too wide."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.prose import paragraph_spans

LIMIT = 118
_PREFIX = re.compile(r"^(\s*(?:[-*+]|\d+\.)\s+|\s*>\s?|\s*)")
# At the start of a line these would begin a list or a heading.
_NO_START = re.compile(r"^([-*+#>]+|\d+[.)])$")


def wrapped(text: str) -> str:
    """The page with every paragraph that has a line over `LIMIT` broken anew."""
    lines, done, last = text.splitlines(), [], 0
    for start, end in paragraph_spans(text):
        done += lines[last:start]
        chunk, last = lines[start:end], end
        done += _broken(chunk) if max(map(len, chunk)) > LIMIT else chunk
    return "\n".join([*done, *lines[last:]]) + "\n"


def _broken(chunk: list[str]) -> list[str]:
    prefix = _PREFIX.match(chunk[0])
    first = prefix[0] if prefix else ""
    quoted = first.strip() == ">"
    hanging = first if quoted else " " * len(first)
    body = [
        chunk[0][len(first) :],
        *(line.strip().lstrip(">" if quoted else "") for line in chunk[1:]),
    ]
    lines, line = [], first
    for word in _words(" ".join(body)):
        fits = line in (first, hanging) or len(line) + 1 + len(word) <= LIMIT
        if not fits and not _NO_START.match(word):
            lines.append(line)
            line = hanging
        line += word if line in (first, hanging) else f" {word}"
    return [*lines, line]


def _words(text: str) -> Iterator[str]:
    """Its words; a code span is never broken."""
    word, in_code = "", False
    for sign in text:
        in_code ^= sign == "`"
        if sign.isspace() and not in_code:
            if word:
                yield word
            word = ""
        else:
            word += sign
    if word:
        yield word


if __name__ == "__main__":
    for name in sys.argv[1:]:
        page = Path(name)
        page.write_text(wrapped(page.read_text()))
