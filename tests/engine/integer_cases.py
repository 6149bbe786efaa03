"""Random ranges of integers, held by the engine's grammar: what it lets through at their ends.

It prints the number of ranges that were held, and those of which the grammar is not exact.
"""

from __future__ import annotations

import json
import random

import xgrammar

from api.schemas.held import held
from api.schemas.integers import LEAST, MOST

END = 256
NUM_RANGES = 300


def lets(grammar: xgrammar.CompiledGrammar, text: str) -> bool:
    """Whether the text is an answer."""
    matcher = xgrammar.GrammarMatcher(grammar)
    return bool(matcher.accept_string(text) and matcher.accept_token(END))


def a_range(chance: random.Random) -> tuple[int, int]:
    """Ends of any size, near each other or not, and round ones."""
    size, other = 10 ** chance.randint(0, 15), 10 ** chance.randint(0, 15)
    low = chance.choice([chance.randint(-size, size), size, size - 1, -size, 0])
    high = chance.choice([low + chance.randint(0, 3000), low + chance.randint(0, other), other - 1])
    return max(low, LEAST), min(high, MOST)


def main() -> None:
    chance = random.Random(7)
    bytes_: list[str | bytes] = [bytes([byte]) for byte in range(END)]
    info = xgrammar.TokenizerInfo([*bytes_, b"</s>"], stop_token_ids=[END])
    compiler = xgrammar.GrammarCompiler(info, max_threads=1)
    num_held, wrong = 0, []
    for low, high in (a_range(chance) for _ in range(NUM_RANGES)):
        if low > high:
            continue
        schema, missing = held({"type": "integer", "minimum": low, "maximum": high})
        if missing:
            continue
        num_held += 1
        grammar = compiler.compile_json_schema(json.dumps(schema), any_whitespace=False)
        powers = [sign * (10**i - less) for i in range(18) for sign in (1, -1) for less in (0, 1)]
        near = [end + step for end in (low, high) for step in (-100, -10, -1, 0, 1, 10, 100)]
        inside = [chance.randint(low, high) for _ in range(20)]
        wrong += [
            [low, high, value]
            for value in {*powers, *near, *inside}
            if lets(grammar, str(value)) != (low <= value <= high)
        ]
        wrong += [[low, high, odd] for odd in ("-", "00", "007", "1.0") if lets(grammar, odd)]
    print(json.dumps([num_held, wrong[:20]]))


if __name__ == "__main__":
    main()
