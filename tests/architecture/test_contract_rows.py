"""Rows are counted where a test claims them: by a mark, or by its name in the contract's folder."""

from __future__ import annotations

from tests.contract_rows import claims

MARKED = """
import pytest
pytestmark = [pytest.mark.thorough, pytest.mark.contract("T-01")]

@pytest.mark.parametrize("x", [1])
@pytest.mark.contract("C-09", "C-10")
async def test_c_11_is_no_claim_here(x): ...

def helper(): ...
"""
NAMED = """
def test_c_09_says_so(): ...
def test_something_else(): ...
"""


def test_marks_and_names() -> None:
    by_mark, by_name = "tests/unit/test_a.py", "tests/integration/contract/test_b.py"
    marked, named = f"{by_mark}::test_c_11_is_no_claim_here", f"{by_name}::test_c_09_says_so"
    assert claims({by_mark: MARKED, by_name: NAMED}) == {
        "T-01": {marked},
        "C-09": {marked, named},
        "C-10": {marked},
    }
