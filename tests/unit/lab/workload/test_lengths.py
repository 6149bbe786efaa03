from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from lab.workload.lengths import PromptMaker, fixed_lengths, read_lengths, sampled_lengths


def test_prompts_are_repeatable_and_share_no_prefix() -> None:
    maker = PromptMaker(vocab_size=1000, seed=1)
    a, b = maker.make("a", 50), maker.make("b", 50)
    assert a == PromptMaker(1000, 1).make("a", 50)
    assert a[:4] != b[:4]
    assert min(a) >= 256
    assert max(a) < 1000


def test_a_tiny_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match="has no ids from 256 on"):
        PromptMaker(200, 1)


def test_lengths_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "l.csv"
    path.write_text("input_tokens,output_tokens\n10,1\n20,2\n")
    assert read_lengths(path) == [(10, 1), (20, 2)]
    drawn = list(itertools.islice(sampled_lengths([(10, 1), (20, 2)], seed=5), 50))
    assert set(drawn) == {(10, 1), (20, 2)}
    path.write_text("input_tokens\n10\n")
    with pytest.raises(ValueError, match="column 'output_tokens' is missing"):
        read_lengths(path)
    path.write_text("input_tokens,output_tokens\n")
    with pytest.raises(ValueError, match="no lengths"):
        read_lengths(path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("x,1", r"l.csv:2: \('x', '1'\) are not two whole numbers"),
        ("5", r"l.csv:2: \('5', None\) are not two whole numbers"),
        ("-5,1", "l.csv:2: lengths must be at least 1"),
        ("1" * 140_000, "l.csv: not a CSV file"),
    ],
)
def test_a_bad_row_of_lengths_is_named(tmp_path: Path, row: str, message: str) -> None:
    path = tmp_path / "l.csv"
    path.write_text(f"input_tokens,output_tokens\n{row}\n")
    with pytest.raises(ValueError, match=message):
        read_lengths(path)


def test_fixed_lengths_never_end() -> None:
    assert list(itertools.islice(fixed_lengths(3, 4), 2)) == [(3, 4), (3, 4)]
