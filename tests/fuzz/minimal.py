"""The smallest body that still shows a fault."""

from __future__ import annotations

import copy
from typing import Any

from tests.fuzz.asking import Caller
from tests.fuzz.bodies import Sent
from tests.fuzz.values import places

MOST_TRIES = 60


async def minimal(caller: Caller, sent: Sent, fault: str) -> Sent:
    """Leave one part after the other out, as long as the answer has the fault."""
    smallest, num_tries, place = sent, 0, 0
    while num_tries < MOST_TRIES:
        tried = without(smallest.body or {}, place)
        if tried is None:
            break
        num_tries += 1
        smaller = smallest.with_body(tried)
        if fault in (await caller.ask(smaller)).faults:
            smallest = smaller
        else:
            place += 1
    return smallest


def without(body: dict[str, Any], place: int) -> dict[str, Any] | None:
    """A body without its n-th part, containers before what they hold; None past the last one."""
    tried = copy.deepcopy(body)
    for number, (within, key) in enumerate(places(tried)):
        if number == place:
            del within[key]
            return tried
    return None
