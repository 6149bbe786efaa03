"""Pages can be read aloud: short lines, short sentences, words of the glossary, links that lead."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

from tests.architecture.prose import anchors, blocks, long_lines, num_words

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs/glossary.md"
MAX_LINE, MAX_WORDS = 120, 35

# Written by a program.
GENERATED = {"docs/compatibility.md"}
# Still to be rewritten. A page that reads well leaves this list: a test sees to it.
EXCEPTED: set[str] = set()


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


PAGES = {
    _name(page): page
    for page in (
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "bench").rglob("*.md"),
    )
    if _name(page) not in GENERATED
}


def _glossary(heading: str) -> list[list[str]]:
    """The cells of the tables under headings that begin so, row by row, without their heads."""
    sections = re.split(r"^## ", GLOSSARY.read_text(), flags=re.MULTILINE)[1:]
    rows = [
        [cell.strip() for cell in line.strip("| ").split("|")]
        for section in sections
        if section.startswith(heading)
        for line in section.splitlines()
        if line.startswith("|")
    ]
    return [row for row in rows if row[0] not in ("word", "not", "---")]


def _words_not_used() -> re.Pattern[str]:
    words = [word for row in _glossary("Words not used") for word in row[0].split(", ")]
    assert len(words) > 3
    return re.compile(rf"\b({'|'.join(map(re.escape, words))})(s|ed|ing|ion)?\b", re.IGNORECASE)


_REQUESTS = re.compile(
    r"\b(?:online|offline|flex|decode|decoding|running|waiting|parked|retracted)\s+rows?\b",
    re.IGNORECASE,
)

# What runs is a row: a line is checked in its file, or holds a result.
_ROWS = re.compile(
    r"\b(?:un)?answered\s+lines?\b|\bfailed\s+lines?\b|\bbatch(?:es)?'s?\s+(?:\w+\s+)?lines?\b"
    r"|\blines?\s+of\s+(?:a|the)\s+batch\b(?!'s|\s+(?:input|file))|\blines?\s+of\s+batches\b",
    re.IGNORECASE,
)


def _said_in(source: Path) -> list[tuple[int, str]]:
    """Docstrings and comments of a module, each with its line."""
    text = source.read_text()
    found = [
        (token.start[0], token.string.lstrip("# "))
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    ]
    found += [
        (node.lineno, str(node.value.value))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    return found


def _docstrings_with(words: re.Pattern[str], package: str) -> list[str]:
    return [
        f"{_name(source)}:{line}: {said[0]!r}"
        for source in (ROOT / package).rglob("*.py")
        for line, text in _said_in(source)
        for said in words.finditer(text)
    ]


@pytest.mark.parametrize(
    "package", ["coserve", "gateway", "batch", "store", "engine_adapter", "bench"]
)
def test_docstrings_call_requests_of_an_engine_requests(package: str) -> None:
    assert _docstrings_with(_REQUESTS, package) == []


@pytest.mark.parametrize("package", ["coserve", "gateway", "batch", "store"])
def test_docstrings_call_rows_of_a_batch_rows(package: str) -> None:
    assert _docstrings_with(_ROWS, package) == []


def complaints(name: str) -> list[str]:
    """What is hard to read on a page."""
    page, not_used = PAGES[name], _words_not_used()
    found = []
    if page != ROOT / "CHANGELOG.md":  # a line an entry
        found += [f"{name}:{line}: longer than {MAX_LINE}" for line in long_lines(page, MAX_LINE)]
    read = blocks(page)
    for block in read:
        for sentence in block.sentences():
            if num_words(sentence) > MAX_WORDS:
                found.append(f"{name}:{block.line}: {num_words(sentence)} words: {sentence[:60]}…")
        if page != GLOSSARY:
            for pattern in (not_used, _ROWS):
                found += [
                    f"{name}:{block.line}: {one[0]!r}" for one in pattern.finditer(block.text)
                ]
    return found


@pytest.mark.parametrize("name", sorted(set(PAGES) - EXCEPTED))
def test_a_page_can_be_read_aloud(name: str) -> None:
    assert complaints(name) == []


@pytest.mark.parametrize("name", sorted(_name(page) for page in (ROOT / "docs").glob("*.md")))
def test_a_page_begins_with_who_needs_it(name: str) -> None:
    lead = next(block.text for block in blocks(ROOT / name) if not block.heading)
    assert re.match(r"For (?:every|operators|users|engineers|readers|those|doubters)", lead), lead


def test_exceptions_are_only_pages_that_need_one() -> None:
    assert sorted(name for name in EXCEPTED if name not in PAGES or not complaints(name)) == []


def test_every_link_and_anchor_resolves() -> None:
    known: dict[Path, set[str]] = {}
    lost, num_links = [], 0
    for name, page in PAGES.items():
        for block in blocks(page):
            for link in block.links:
                if re.match(r"[a-z]+:", link):
                    continue
                num_links += 1
                path, _, anchor = link.partition("#")
                to = (page.parent / path).resolve() if path else page
                if not to.exists():
                    lost.append(f"{name}:{block.line}: {link}")
                    continue
                is_page = anchor and to.suffix == ".md"
                if is_page and anchor not in known.setdefault(to, anchors(to)):
                    lost.append(f"{name}:{block.line}: {link}")
    assert num_links > 100
    assert lost == []


def test_every_word_of_the_glossary_is_used() -> None:
    used = [block.text for page in PAGES.values() if page != GLOSSARY for block in blocks(page)]
    for package in ("engine_adapter", "batch", "gateway"):
        used += [source.read_text() for source in (ROOT / package).rglob("*.py")]
    text = " ".join(used).lower()
    words = [row[0] for row in _glossary("Words of")]
    assert len(words) == len(set(words)) > 25
    assert [word for word in words if word.lower() not in text] == []
