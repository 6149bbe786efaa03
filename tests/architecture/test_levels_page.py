"""docs/levels.md has the limits of the code, and the models that tests try."""

from __future__ import annotations

from tests.levels_page import PAGE, page


def test_the_tables_are_those_of_the_code() -> None:
    now = PAGE.read_text()
    assert page(now) == now, "python -m tests.levels_page --write"
