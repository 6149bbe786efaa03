"""Rows that begin alike are claimed together, however the file shuffles them."""

from __future__ import annotations

import itertools
import random

import orjson

from batch.intake.validate import validate
from batch.states import BatchStatus
from store.repositories import row as rows
from store.session import Database
from tests.fixtures.batches import MODEL, Bench, add_validating

NUM_GROUPS = 64
NUM_PER_GROUP = 8
CLAIM = 16


def line(group: int, number: int) -> bytes:
    """A request whose system prompt, some 512 tokens, is its group's."""
    system = f"You are assistant {group}. " + "Answer briefly and truly. " * 80
    messages = [
        {"role": "system", "content": system},
        {"role": "user", "content": f"question {number}"},
    ]
    return orjson.dumps(
        {
            "custom_id": f"{group}/{number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": MODEL, "messages": messages},
        }
    )


async def claimed_groups(database: Database, token: str, batch_id: str) -> list[str]:
    async with database.unit_of_work() as session:
        found = await rows.claim(session, token, {batch_id: CLAIM})
    return [row.custom_id.split("/")[0] for row in found]


async def test_shuffled_groups_are_claimed_one_after_another(database: Database) -> None:
    bench = Bench(database)
    lines = [line(group, n) for group in range(NUM_GROUPS) for n in range(NUM_PER_GROUP)]
    random.Random(7).shuffle(lines)
    batch_id = await add_validating(database, bench.file_store, lines)
    assert await validate(database, bench.file_store, batch_id) is BatchStatus.IN_PROGRESS

    tokens = [(await bench.lease(f"http://e{n}")).id for n in range(2)]
    claims = []
    for token in itertools.cycle(tokens):  # two engines take turns
        groups = await claimed_groups(database, token, batch_id)
        if not groups:
            break
        claims.append(set(groups))
    assert len(claims) == NUM_GROUPS * NUM_PER_GROUP // CLAIM
    # A claim of 16 rows is two whole groups of 8: no engine warms a prefix for a row or two.
    assert [len(groups) for groups in claims] == [CLAIM // NUM_PER_GROUP] * len(claims)
    assert len(set().union(*claims)) == NUM_GROUPS
