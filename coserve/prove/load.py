"""What is sent: chats at random instants, and the rows of a batch; the same for every system."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

CHAT_WORDS: Final = (20, 60, 200)
CHAT_TOKENS: Final = (16, 32, 48)
ROW_WORDS: Final = 120
ROW_TOKENS: Final = 64
NUM_ROWS: Final = 20_000
ENDPOINT: Final = "/v1/chat/completions"
_WORDS: Final = (
    "harbour", "winter", "market", "letter", "bridge", "garden", "engine", "river", "teacher",
    "window", "paper", "mountain", "kitchen", "ticket", "summer", "doctor", "village", "orchard",
    "station", "lantern",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Chat:
    """One chat request.

    Attributes:
        number: Which it is; the same number is the same request at every system.
        at_s: When it is sent, in seconds of its system's whole time.
        words: Length of its prompt, in words.
        max_tokens: Of its answer.
    """

    number: int
    at_s: float
    words: int
    max_tokens: int

    def body(self, model: str, system: str) -> dict[str, Any]:
        """The request. Systems get different first words, or one would find the other's prefix."""
        text = f"{system} {self.number}. Continue this story: {_story(self.number, self.words)}"
        return {
            "model": model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "stream": True,
        }


def chats(rate_per_s: float, seconds: float, seed: int) -> list[Chat]:
    """Chats whose gaps are exponential, with lengths drawn for each."""
    draw = random.Random(seed)
    found: list[Chat] = []
    at_s = draw.expovariate(rate_per_s)
    while at_s < seconds:
        words, tokens = draw.choice(CHAT_WORDS), draw.choice(CHAT_TOKENS)
        found.append(Chat(len(found), at_s, words, tokens))
        at_s += draw.expovariate(rate_per_s)
    return found


def row(model: str, number: int) -> dict[str, Any]:
    """The request of one row."""
    text = f"Row {number}. Summarise: {_story(-1 - number, ROW_WORDS)}"
    return {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": ROW_TOKENS,
        "temperature": 0,
    }


def lines(model: str) -> Iterator[bytes]:
    """The lines of the batch's file."""
    for number in range(NUM_ROWS):
        line = {"custom_id": f"r{number}", "method": "POST", "url": ENDPOINT}
        yield json.dumps(line | {"body": row(model, number)}).encode() + b"\n"


def write_batch(path: Path, model: str) -> None:
    with path.open("wb") as file:
        file.writelines(lines(model))


def _story(seed: int, num_words: int) -> str:
    draw = random.Random(seed)
    return " ".join(draw.choice(_WORDS) for _ in range(num_words))
