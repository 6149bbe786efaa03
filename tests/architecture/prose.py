"""The prose of a Markdown page, as a reader reads it: blocks of text, their lines, their links."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

_MARKDOWN = MarkdownIt("commonmark").enable("table")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]*]*\s+(?=[\"'(\[*]*[A-Z0-9`«])")
_ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|al|no|approx)\.", re.IGNORECASE)
# As if it began a sentence: after a full stop it may.
_CODE = "Code"


@dataclass(frozen=True)
class Block:
    """A paragraph, a heading, a list item's text or a table's cell.

    Attributes:
        line: Where it begins, from 1.
        text: What is read: code spans are one word each, links their text.
        links: Where its links and pictures lead.
        in_table: Whether it is a cell.
        heading: Its level as a heading, else 0.
    """

    line: int
    text: str
    links: tuple[str, ...]
    in_table: bool
    heading: int

    def sentences(self) -> list[str]:
        """Its text, sentence by sentence."""
        whole = _ABBREVIATIONS.sub(lambda found: found[0].replace(".", ""), self.text)
        return [one for one in _SENTENCE_END.split(whole) if one]


def num_words(sentence: str) -> int:
    """Words; signs that stand alone are none."""
    return sum(any(sign.isalnum() for sign in word) for word in sentence.split())


def blocks(page: Path) -> list[Block]:
    """Every block of a page, in order."""
    return list(_blocks(_MARKDOWN.parse(page.read_text())))


def _blocks(tokens: list[Token]) -> Iterator[Block]:
    before: Token | None = None
    row_line = 0
    for token in tokens:
        if token.type == "tr_open" and token.map:
            row_line = token.map[0]
        if token.type == "inline":
            in_table = before is not None and before.type in ("th_open", "td_open")
            heading = before is not None and before.type == "heading_open"
            start = row_line if in_table else token.map[0] if token.map else 0
            children = token.children or []
            yield Block(
                line=start + 1,
                text="".join(map(_read, children)).strip(),
                links=tuple(_links(children)),
                in_table=in_table,
                heading=int(before.tag[1]) if heading and before else 0,
            )
        before = token


def _read(token: Token) -> str:
    if token.type in ("softbreak", "hardbreak"):
        return " "
    if token.type == "code_inline":
        return _CODE
    return token.content if token.type == "text" else ""


def _links(children: list[Token]) -> Iterator[str]:
    for child in children:
        target = child.attrGet("href") if child.type == "link_open" else child.attrGet("src")
        if target is not None:
            yield str(target)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the usual renderers make them."""
    found: dict[str, int] = {}
    names = set()
    for inline in _headings(page):
        text = "".join(child.content for child in inline.children or [])
        slug = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
        seen = found.get(slug, 0)
        found[slug] = seen + 1
        names.add(f"{slug}-{seen}" if seen else slug)
    return names


def _headings(page: Path) -> Iterator[Token]:
    tokens = _MARKDOWN.parse(page.read_text())
    for token, inline in itertools.pairwise(tokens):
        if token.type == "heading_open":
            yield inline


def long_lines(page: Path, limit: int) -> list[int]:
    """Lines of prose longer than `limit`, from 1; code, tables and HTML are none.

    A line of a single word cannot be shorter.
    """
    text = page.read_text()
    lines = text.splitlines()
    not_prose: set[int] = set()
    for token in _MARKDOWN.parse(text):
        if token.type in ("fence", "code_block", "table_open", "html_block") and token.map:
            not_prose |= set(range(*token.map))
    return [
        number + 1
        for number, line in enumerate(lines)
        if number not in not_prose and len(line) > limit and len(line.split()) > 1
    ]


def paragraph_spans(text: str) -> list[tuple[int, int]]:
    """The lines of each paragraph: first, and one after the last, from 0."""
    return [
        (token.map[0], token.map[1])
        for token in _MARKDOWN.parse(text)
        if token.type == "paragraph_open" and token.map
    ]
