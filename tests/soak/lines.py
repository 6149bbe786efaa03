"""The lines of a soak: answers of many lengths, by every path that a token can take."""

from __future__ import annotations

import random
from typing import Any

import orjson

from engine_adapter.client.base import CHAT_PATH

SEED = 7
NUM_LONG = 14
"""Prompts of more than a thousand tokens: prefilled in pieces beside what decodes."""

LONG_TOKENS = 40
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer"}, "why": {"type": "string", "maxLength": 60}},
    "required": ["answer", "why"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"response_format": FORMAT},
    {"logprobs": True, "top_logprobs": 3},
    {"frequency_penalty": 0.7, "presence_penalty": 0.3},
    {"stop": ["\n\n"]},
    {"logit_bias": {"28": -5}},
    {"min_tokens": 10},
    {"max_tokens": 200},
)
NAMES = ("Ana", "Bo", "Chidi", "Dara", "Emre", "Fay", "Goro", "Hana", "Ivo", "Jun")
THINGS = ("apples", "marbles", "stamps", "boats", "candles", "letters", "bells", "kites")


def make_lines(model: str, num_lines: int) -> bytes:
    """An input file; the same for the same arguments."""
    rng = random.Random(SEED)
    bodies = [_problem(rng) | VARIANTS[n % len(VARIANTS)] for n in range(num_lines - NUM_LONG)]
    bodies += [_long(rng) for _ in range(NUM_LONG)]
    rng.shuffle(bodies)
    return b"\n".join(
        orjson.dumps(
            {
                "custom_id": f"line-{n:03}",
                "method": "POST",
                "url": CHAT_PATH,
                "body": {"model": model, "temperature": 0} | body,
            }
        )
        for n, body in enumerate(bodies)
    )


def _said(text: str, max_tokens: int) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": max_tokens}


def _sentence(rng: random.Random) -> str:
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    return f"{name} has {rng.randint(3, 99)} {thing} and gives {rng.randint(1, 60)} of them away."


def _problem(rng: random.Random) -> dict[str, Any]:
    told = " ".join(_sentence(rng) for _ in range(rng.randint(1, 6)))
    question = "How many are left to each? Solve it step by step and end with the numbers."
    return _said(f"{told} {question}", rng.choice((16, 48, 96, 160)))


def _long(rng: random.Random) -> dict[str, Any]:
    told = " ".join(_sentence(rng) for _ in range(rng.randint(70, 90)))
    return _said(f"{told} Who gave the most away?", LONG_TOKENS)


def chat_prompt(number: int) -> str:
    """One of a few online prompts, short and longer ones: each comes many times."""
    return f"Tell me about the number {number}. " + "It is a fine number. " * (number * 9)
