"""The two state machines of a batch: its status and the status of each of its rows.

The tables below are the only place where a move is declared. SQL has the same words in CHECK
constraints (store/states.py); `docs/batch-life.md` holds the diagram drawn from them (tested).

Invariants: a terminal status has no exit, every other status has one; an `*_at` column of a batch
is set exactly when the status of that name is entered (rows R-01, R-02, R-05).
"""

from __future__ import annotations

from collections.abc import Mapping

from store.states import TERMINAL_BATCH as TERMINAL_BATCH
from store.states import BatchStatus as BatchStatus
from store.states import RowStatus as RowStatus

BATCH_TRANSITIONS: Mapping[BatchStatus, frozenset[BatchStatus]] = {
    BatchStatus.VALIDATING: frozenset(
        {
            BatchStatus.IN_PROGRESS,
            BatchStatus.FAILED,
            BatchStatus.CANCELLING,
            BatchStatus.EXPIRED,
        }
    ),
    BatchStatus.IN_PROGRESS: frozenset(
        {BatchStatus.FINALIZING, BatchStatus.CANCELLING, BatchStatus.EXPIRED}
    ),
    BatchStatus.FINALIZING: frozenset({BatchStatus.COMPLETED}),
    BatchStatus.CANCELLING: frozenset({BatchStatus.CANCELLED}),
    BatchStatus.COMPLETED: frozenset(),
    BatchStatus.FAILED: frozenset(),
    BatchStatus.EXPIRED: frozenset(),
    BatchStatus.CANCELLED: frozenset(),
}

ROW_TRANSITIONS: Mapping[RowStatus, frozenset[RowStatus]] = {
    RowStatus.PENDING: frozenset({RowStatus.LEASED, RowStatus.CANCELLED, RowStatus.EXPIRED}),
    # Back to pending: released, reaped or put back for another attempt.
    RowStatus.LEASED: frozenset(
        {
            RowStatus.PENDING,
            RowStatus.SUCCEEDED,
            RowStatus.ERRORED,
            RowStatus.CANCELLED,
            RowStatus.EXPIRED,
        }
    ),
    RowStatus.SUCCEEDED: frozenset(),
    RowStatus.ERRORED: frozenset(),
    RowStatus.CANCELLED: frozenset(),
    RowStatus.EXPIRED: frozenset(),
}

LIVE_BATCH = frozenset(BatchStatus) - TERMINAL_BATCH
CANCELLABLE_BATCH = frozenset(
    {status for status, exits in BATCH_TRANSITIONS.items() if BatchStatus.CANCELLING in exits}
)

TERMINAL_ROW = frozenset(
    {RowStatus.SUCCEEDED, RowStatus.ERRORED, RowStatus.CANCELLED, RowStatus.EXPIRED}
)
OPEN_ROW = frozenset(RowStatus) - TERMINAL_ROW


def sources_of(target: BatchStatus) -> frozenset[BatchStatus]:
    """The statuses from which `target` may be entered."""
    return frozenset(status for status, exits in BATCH_TRANSITIONS.items() if target in exits)


def row_sources_of(target: RowStatus) -> frozenset[RowStatus]:
    """The row statuses from which `target` may be entered."""
    return frozenset(status for status, exits in ROW_TRANSITIONS.items() if target in exits)


def batch_diagram() -> str:
    """The batch diagram as Mermaid text, in the order of the table."""
    return _draw({status: frozenset(exits) for status, exits in BATCH_TRANSITIONS.items()})


def row_diagram() -> str:
    """The row diagram as Mermaid text, in the order of the table."""
    return _draw({status: frozenset(exits) for status, exits in ROW_TRANSITIONS.items()})


def _draw(transitions: Mapping[str, frozenset[str]]) -> str:
    first = next(iter(transitions))
    lines = ["stateDiagram-v2", f"    [*] --> {first}"]
    for status, exits in transitions.items():
        lines += [f"    {status} --> {target}" for target in sorted(exits)]
        if not exits:
            lines.append(f"    {status} --> [*]")
    return "\n".join(lines) + "\n"
