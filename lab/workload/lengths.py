"""Prompt and answer lengths, and prompts made of token ids."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator
from pathlib import Path

Lengths = tuple[int, int]


def fixed_lengths(input_tokens: int, output_tokens: int) -> Iterator[Lengths]:
    """The same lengths for ever."""
    while True:
        yield input_tokens, output_tokens


def read_lengths(path: Path) -> list[Lengths]:
    """Pairs from a CSV file with the header ``input_tokens,output_tokens``.

    Raises:
        ValueError: If the columns are missing, a length is none, or no row is there.
    """
    pairs = []
    with path.open(newline="", encoding="utf-8-sig") as file:
        try:
            for line, row in enumerate(csv.DictReader(file), start=2):
                pairs.append(_pair(path, line, row))
        except KeyError as error:
            raise ValueError(f"{path}: column {error} is missing") from error
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: not a CSV file: {error}") from error
    if not pairs:
        raise ValueError(f"{path}: no lengths")
    return pairs


def _pair(path: Path, line: int, row: dict[str, str]) -> Lengths:
    cells = (row["input_tokens"], row["output_tokens"])
    try:
        inputs, outputs = map(int, cells)
    except (TypeError, ValueError):
        raise ValueError(f"{path}:{line}: {cells} are not two whole numbers") from None
    if inputs < 1 or outputs < 1:
        raise ValueError(f"{path}:{line}: lengths must be at least 1")
    return inputs, outputs


def sampled_lengths(pairs: list[Lengths], seed: int) -> Iterator[Lengths]:
    """Pairs drawn with replacement, for ever."""
    generator = random.Random(seed)
    while True:
        yield generator.choice(pairs)


class PromptMaker:
    """Prompts of random token ids that share no prefix.

    Args:
        vocab_size: Size of the model's vocabulary.
        seed: Makes the prompts repeatable.
        lowest_id: Ids below are left out: the special tokens of most models.
    """

    def __init__(self, vocab_size: int, seed: int, lowest_id: int = 256) -> None:
        """Refuse a vocabulary without ordinary ids.

        Raises:
            ValueError: If ``vocab_size`` does not exceed ``lowest_id``.
        """
        if vocab_size <= lowest_id:
            raise ValueError(f"a vocabulary of {vocab_size} has no ids from {lowest_id} on")
        self._vocab_size = vocab_size
        self._lowest_id = lowest_id
        self._seed = seed

    def make(self, name: str, num_tokens: int) -> list[int]:
        """The prompt of that name: the same name and length give the same ids in every run."""
        generator = random.Random(f"{self._seed}/{name}")
        return [generator.randrange(self._lowest_id, self._vocab_size) for _ in range(num_tokens)]
