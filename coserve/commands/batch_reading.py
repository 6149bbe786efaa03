"""`coserve batch list|get|events|results`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from coserve.commands.batch_terminal import (
    ApiKey,
    BaseUrl,
    BatchId,
    Refusals,
    detail_words,
    make_client,
    make_console,
    print_batch,
)
from coserve.commands.listing import (
    AsJson,
    Columns,
    Filters,
    Limit,
    instant,
    passing,
    print_json,
    show_list,
    text,
)
from store.states import TERMINAL_BATCH, BatchStatus

if TYPE_CHECKING:
    from rich.console import Console

    from coserve.commands.batch_client import BatchClient

POLL_S: Final = 1.0
MAX_POLL_FAILURES: Final = 60


class Kind(StrEnum):
    """Which result lines."""

    OUTPUT = "output"
    ERROR = "error"


def follow(client: BatchClient, batch: dict[str, Any], console: Console) -> dict[str, Any]:
    """Show a batch's progress to its end; Ctrl-C leaves it alone and exits with 130."""
    from coserve.commands import batch_progress

    try:
        return batch_progress.wait(client, batch, console)
    except KeyboardInterrupt:
        console.print(f"\nThe batch goes on: coserve batch wait {batch['id']}", highlight=False)
        raise typer.Exit(130) from None


def register(app: typer.Typer) -> None:
    """Add the commands to `coserve batch`."""
    app.command(name="list")(list_batches)
    app.command()(get)
    app.command()(wait)
    app.command()(events)
    app.command()(results)


def _count(name: str) -> Callable[[Any], str]:
    return lambda batch: str(batch["request_counts"][name])


def _status(batch: Any) -> str:
    """The status as people mean it: a paused batch is not at work."""
    ours = batch.get("coserve") or {}
    if ours.get("paused") and batch["status"] not in TERMINAL_BATCH:
        return "paused"
    return str(batch["status"])


def _expected(batch: Any) -> str:
    at = (batch.get("coserve") or {}).get("predicted_finish_at")
    return "-" if at is None else instant("at")({"at": at})


_COLUMNS: Columns = {
    "id": text("id"),
    "file": lambda batch: (batch.get("coserve") or {}).get("input_filename") or "-",
    "status": _status,
    "completed": _count("completed"),
    "failed": _count("failed"),
    "total": _count("total"),
    "expected end": _expected,
    "model": text("model"),
    "created": instant("created_at"),
}


_EVENT_COLUMNS: Columns = {
    "when": instant("created_at"),
    "what": text("event"),
    "who": lambda event: event["actor"] or "coserve",
    "status": text("to_status"),
    "detail": lambda event: detail_words(event) or "-",
}


def list_batches(
    limit: Limit = 20,
    json: AsJson = False,
    filters: Filters = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """List batches, newest first."""
    with make_client(base_url, api_key) as client, Refusals():
        show_list(_COLUMNS, client.newest(), json=json, limit=limit, filters=filters)


def get(
    batch_id: BatchId,
    json: AsJson = False,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Show one batch: counts, pace, predicted end, its life so far, and every error of its file."""
    with make_client(base_url, api_key) as client, Refusals():
        batch = client.get(batch_id)
        batch["events"] = [*client.events(batch_id)]
    if json:
        print_json(batch)
    else:
        print_batch(make_console(), batch, whole=True)


def wait(
    batch_id: BatchId,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Follow a batch to its end; 1 if it did not complete. Ctrl-C leaves the batch alone."""
    console = make_console()
    with make_client(base_url, api_key) as client, Refusals():
        batch = follow(client, client.get(batch_id), console)
        print_batch(console, batch)
    if batch["status"] != BatchStatus.COMPLETED:
        raise typer.Exit(1)


def events(
    batch_id: BatchId,
    limit: Limit = 1000,
    json: AsJson = False,
    filters: Filters = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Show what happened to a batch and who did it, oldest first."""
    with make_client(base_url, api_key) as client, Refusals():
        show_list(_EVENT_COLUMNS, client.events(batch_id), json=json, limit=limit, filters=filters)


def results(  # noqa: PLR0913
    batch_id: BatchId,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the batch is over.")
    ] = False,
    kind: Annotated[Kind | None, typer.Option(help="Only these lines.")] = None,
    offset: Annotated[int, typer.Option(min=0, help="Begin after this line.")] = 0,
    limit: Limit = 100_000,
    filters: Filters = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Print the result lines so far, as JSONL in the form of the output file."""
    import orjson

    with make_client(base_url, api_key) as client, Refusals():
        lines = _lines(client, batch_id, offset, kind, follow=follow)
        if filters:
            lines = (orjson.dumps(one) for one in passing(map(orjson.loads, lines), filters))
        for _, line in zip(range(limit), lines, strict=False):
            sys.stdout.buffer.write(line + b"\n")
            sys.stdout.flush()


def _lines(
    client: BatchClient, batch_id: str, offset: int, kind: Kind | None, *, follow: bool
) -> Iterator[bytes]:
    """Result lines to the end, or as far as there are; a service that is away is asked again."""
    from coserve.commands.batch_client import ServiceError

    num_failures = 0
    while True:
        try:
            content, following, complete = client.results(batch_id, offset, kind)
        except ServiceError as error:
            num_failures += 1
            if not follow or error.refused or num_failures >= MAX_POLL_FAILURES:
                raise
            time.sleep(POLL_S)
            continue
        num_failures = 0
        yield from content.removesuffix(b"\n").split(b"\n") if content else ()
        if complete:
            return
        if following == offset:
            if not follow:
                return
            time.sleep(POLL_S)
        offset = following
