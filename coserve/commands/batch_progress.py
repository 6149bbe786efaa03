"""Watching a batch from the command line until it is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from coserve.commands.batch_client import BatchClient, ServiceError
from coserve.commands.batch_terminal import state_words
from store.states import TERMINAL_BATCH, BatchStatus

POLL_S: Final = 1.0
MAX_POLL_FAILURES: Final = 60


def wait(
    client: BatchClient,
    batch: dict[str, Any],
    console: Console,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Show a batch's progress until it is over; returns it as it ended.

    A service that does not answer for a while (it may be restarting) is asked again.

    Raises:
        ServiceError: It did not answer `MAX_POLL_FAILURES` times in a row.
    """
    watch = _Bar(console) if console.is_terminal else _Lines(console)
    with watch:
        watch.show(batch)
        num_failures = 0
        while batch["status"] not in TERMINAL_BATCH:
            sleep(POLL_S)
            try:
                batch = client.get(batch["id"])
                num_failures = 0
            except ServiceError:
                num_failures += 1
                if num_failures >= MAX_POLL_FAILURES:
                    raise
                continue
            watch.show(batch)
    return batch


class _Bar:
    """A bar with counts and rate, for a terminal."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[failed]} failed · {task.fields[rate]} rows/s"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[state]}"),
            console=console,
        )
        self._task = self._progress.add_task(
            BatchStatus.VALIDATING, total=None, failed=0, rate="–", state=""
        )

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def show(self, batch: dict[str, Any]) -> None:
        counts = batch["request_counts"]
        speed = self._progress.tasks[0].speed
        self._progress.update(
            self._task,
            description=batch["status"],
            total=counts["total"] or None,
            completed=counts["completed"] + counts["failed"],
            failed=counts["failed"],
            rate="–" if speed is None else f"{speed:.1f}",
            state=_state(batch),
        )


class _Lines:
    """A line for every change, for a log; that a predicted end moves on is none."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: tuple[object, ...] = ()

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *error: object) -> None:
        return

    def show(self, batch: dict[str, Any]) -> None:
        counts = batch["request_counts"]
        line = (
            f"{batch['status']}: {counts['completed']} completed, {counts['failed']} failed "
            f"of {counts['total']}"
        )
        ours = batch.get("coserve") or {}
        is_predicted = ours.get("predicted_finish_at") is not None
        now = (line, ours.get("waiting_reason"), ours.get("paused"), is_predicted)
        if now == self._last:
            return
        self._last = now
        state = _state(batch)
        self._console.print(f"{line}; {state}" if state else line, highlight=False)


def _state(batch: dict[str, Any]) -> str:
    return ", ".join(state_words(batch))
