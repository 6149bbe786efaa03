"""What is parsed in one turn of the event loop, and whose bytes come next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.http.reading import ReadingTurns


@dataclass
class Reader:
    """Owners whose pieces take a second each, of a clock that only they move."""

    turns: ReadingTurns = field(init=False)
    now_s: float = 0.0
    parsed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.turns = ReadingTurns(2.5, lambda: self.now_s)

    def has(self, owner: str, num_pieces: int) -> None:
        left = [owner] * num_pieces

        def step() -> bool:
            self.now_s += 1.0
            self.parsed.append(left.pop())
            return bool(left)

        self.turns.run(owner, step)


async def turn_of_the_loop(then: Callable[[], object]) -> None:
    await asyncio.sleep(0)
    then()


async def test_a_turn_spends_its_budget_and_the_rest_comes_in_the_next_ones() -> None:
    reader = Reader()
    reader.has("a", 8)
    seen = [len(reader.parsed)]
    while len(reader.parsed) < 8:
        await turn_of_the_loop(lambda: seen.append(len(reader.parsed)))
    assert seen == [3, 6, 8]


async def test_owners_take_turns_however_many_of_one_wait() -> None:
    reader = Reader()
    for _ in range(4):
        reader.has("a", 3)
    reader.has("b", 2)
    while len(reader.parsed) < 14:
        await asyncio.sleep(0)
    assert "".join(reader.parsed) == "aaa" + "ababa" + "a" * 6


async def test_little_is_parsed_at_once_and_what_comes_meanwhile_waits() -> None:
    reader = Reader()
    reader.has("a", 1)
    reader.has("b", 1)
    assert reader.parsed == ["a", "b"]
    reader.has("c", 2)
    reader.has("d", 1)
    assert reader.parsed == ["a", "b", "c"]
    while len(reader.parsed) < 5:
        await asyncio.sleep(0)
    assert reader.parsed == ["a", "b", "c", "c", "d"]


async def test_an_idle_one_leaves_nothing_in_the_loop() -> None:
    reader = Reader()
    reader.has("a", 1)
    for _ in range(3):
        await asyncio.sleep(0)
    assert reader.turns._spent_s == 0.0
