"""`coserve batch wait`: a batch is watched until it is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from coserve.commands.batch.words import BatchId, print_batch, state_words
from coserve.commands.service import ApiKey, BaseUrl, connected
from coserve.commands.terminal import make_console
from store.states import TERMINAL_BATCH, BatchStatus

if TYPE_CHECKING:
    from rich.console import Console

    from coserve.commands.service_client import ServiceClient


def wait(
    batch_id: BatchId,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Follow a batch to its end; 1 if it did not complete. Ctrl-C leaves the batch alone."""
    with connected(base_url, api_key) as client:
        batch = follow(client, client.get(batch_id), make_console())
    if batch["status"] != BatchStatus.COMPLETED:
        raise typer.Exit(1)


def follow(client: ServiceClient, batch: dict[str, Any], console: Console) -> dict[str, Any]:
    """Watch a batch to its end and print that; returns it as it ended.

    Raises:
        ServiceError: The service refuses, or is away for a minute.
        typer.Exit: With status 130 after Ctrl-C, which leaves the batch alone.
    """
    try:
        batch = watch(client, batch, console)
    except KeyboardInterrupt:
        console.print(f"\nThe batch goes on: coserve batch wait {batch['id']}", highlight=False)
        raise typer.Exit(130) from None
    print_batch(console, batch)
    return batch


def watch(
    client: ServiceClient,
    batch: dict[str, Any],
    console: Console,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Show a batch's progress until it is over; returns it as it ended.

    Raises:
        ServiceError: The service refuses, or is away for a minute.
    """
    from coserve.commands.service_client import POLL_S, patiently

    progress = _Bar(console) if console.is_terminal else _Lines(console)
    ask = partial(client.get, batch["id"])
    with progress:
        progress.show(batch)
        while batch["status"] not in TERMINAL_BATCH:
            sleep(POLL_S)
            batch = patiently(ask, sleep=sleep)
            progress.show(batch)
    return batch


class _Bar:
    """A bar with counts and rate, for a terminal."""

    def __init__(self, console: Console) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

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
    """A line for every change, for a log. A predicted end that moves is not a change."""

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
