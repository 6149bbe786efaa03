"""Rows that were at an engine when it or their dispatcher was lost, and how they run again. Pure.

A row that ends its engine would do so each time it runs, and would take every row beside it along;
so would one that ends its dispatcher. So a loss of either counts for all rows that were there, and
who has been there twice is suspected:

    losses   runs next
    ──────   ──────────────────────────────────────────────────────
    0, 1     with all others: engines are lost for reasons of their own
    2        beside at most `COHORT_ROWS` - 1 of its like, nothing else
    3        alone
    4        never where an engine was lost: its error is final
    4, 5     alone where a dispatcher was lost
    6        never

A dispatcher's death says less than an engine's: it is killed by whoever restarts a host, and
with it die rows of every sort. So a row is given up after three that it had to itself.

Requests outside of batches have a record of their own (gateway/prompts/quarantine.py), by digests
of what engines saw. Two such losses end a row of the same digest unsent, as they refuse a request;
and a row that is given up is entered there, so that its like runs nowhere for a day.

Suspects need an empty engine. After a loss it is empty: they come first then. A busy engine turns
to them when it has nothing else, or when they have waited for `OVERDUE_S`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from api.responses.call import chat_call
from engine_adapter.client.base import CHAT_PATH, RESPONSES_PATH
from engine_adapter.client.choices import single_choice_bodies
from engine_adapter.client.encoding import digest_of

MAX_LOSSES: Final = 4
SUSPECT_LOSSES: Final = 2
COHORT_ROWS: Final = 16
OVERDUE_S: Final = 300.0
POLL_INTERVAL_S: Final = 5.0
"""How often a busy engine's dispatcher looks for overdue suspects."""

FAILURE_CODE: Final = "engine_failure"
FAILURE_MESSAGE: Final = (
    "The engine was lost each time it ran this request, the last time with no other request of a "
    "batch beside it."
)


ONLINE_LOSSES: Final = 2
ONLINE_MESSAGE: Final = (
    "Engines were lost each time they ran this request outside of this batch. It may be what ends "
    "them, so it was not sent."
)


def digests_of(path: str, body: Mapping[str, Any]) -> list[bytes]:
    """What engines see of a row: one for each choice that differs, as for an online request."""
    if path == RESPONSES_PATH:
        path, body = CHAT_PATH, chat_call(body)
    return list({digest_of(path, one): None for one, _ in single_choice_bodies(path, body)})


@dataclass(frozen=True, slots=True)
class Cohort:
    """Rows that may be at the engine together.

    Attributes:
        min_losses: How often each of them has seen an engine lost, at least
        max_losses: ... and at most.
        num_rows: How many of them may be there at once.
    """

    min_losses: int
    max_losses: int
    num_rows: int


COHORTS: Final = (Cohort(2, 2, COHORT_ROWS), Cohort(3, 32767, 1))
"""In the order in which they are tried: most suspects are innocent and soon done."""


MAX_DISPATCHER_LOSSES: Final = 6
DISPATCHER_CODE: Final = "dispatcher_failure"
DISPATCHER_MESSAGE: Final = (
    "The process that sends requests of batches ended each time it had this one, three times with "
    "no other beside it."
)


def is_final_for_dispatchers(num_losses: int) -> bool:
    """Whether a row is given up at a dispatcher's death, with so many losses, this one included."""
    return num_losses >= MAX_DISPATCHER_LOSSES


def is_final(num_losses: int) -> bool:
    """Whether a row with so many losses, the latest included, is given up."""
    return num_losses >= MAX_LOSSES
