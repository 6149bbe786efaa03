"""How well the service predicts when a batch will be finished, read from its own API meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import psycopg

AT_PERCENT = (0, 10, 25, 50, 75)
"""Progress at which a prediction is judged; 0: the first one after the batch was created."""


@dataclass(frozen=True)
class Poll:
    """What a GET of the batch said.

    Attributes:
        at_s: When it was asked, seconds since the epoch by the database's clock.
        num_completed: Lines finished by then.
        finish_at_s: Predicted end by the same clock, or none.
    """

    at_s: float
    num_completed: int
    finish_at_s: float | None


def poll(client: httpx.Client, connection: psycopg.Connection[Any], batch_id: str) -> Poll:
    """Ask once."""
    found = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
    assert found is not None
    batch = client.get(f"/v1/batches/{batch_id}").raise_for_status().json()
    said = batch["coserve"]["predicted_finish_at"]
    # Whole seconds, rounded down: half of one is the best guess of what was lost.
    finish_at_s = None if said is None else said + 0.5
    return Poll(found[0], batch["request_counts"]["completed"], finish_at_s)


def errors(polls: Sequence[Poll], finished_at_s: float, num_lines: int) -> dict[str, Any]:
    """The first prediction at or after each of `AT_PERCENT`, beside what came.

    `relative_error` is |predicted - actual| over the time that was left then.
    """
    told: dict[str, Any] = {}
    for percent in AT_PERCENT:
        for one in polls:
            if one.finish_at_s is None or one.num_completed * 100 < percent * num_lines:
                continue
            left_s = finished_at_s - one.at_s
            error_s = one.finish_at_s - finished_at_s
            told[f"at_{percent}_percent"] = {
                "progress": round(one.num_completed / num_lines, 3),
                "left_s": round(left_s, 1),
                "error_s": round(error_s, 1),
                "relative_error": round(abs(error_s) / left_s, 3),
            }
            break
    return told
