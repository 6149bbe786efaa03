"""docs/levels.md and README.md have the limits of the code, and the models that tests try."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.levels_page import PAGES, page


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_tables_are_those_of_the_code(path: Path) -> None:
    now = path.read_text()
    assert page(now) == now, "python -m tests.levels_page --write"
