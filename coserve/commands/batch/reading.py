"""`coserve batch list|get|events|results`: what is known of batches, without changing any."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coserve.commands.batch.words import BatchId, detail_words, print_batch
from coserve.commands.listing import (
    AsJson,
    Columns,
    Filters,
    Limit,
    instant,
    passing,
    show_list,
    text,
)
from coserve.commands.service import ApiKey, BaseUrl, connected
from coserve.commands.terminal import make_console, print_json
from store.states import TERMINAL_BATCH

if TYPE_CHECKING:
    from coserve.commands.service_client import ServiceClient


class Kind(StrEnum):
    """Which result lines."""

    OUTPUT = "output"
    ERROR = "error"


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
    with connected(base_url, api_key) as client:
        show_list(_COLUMNS, client.newest(), json=json, limit=limit, filters=filters)


def get(
    batch_id: BatchId,
    json: AsJson = False,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Show one batch: counts, pace, predicted end, its life so far, and every error of its file."""
    with connected(base_url, api_key) as client:
        batch = client.get(batch_id)
        batch["events"] = [*client.events(batch_id)]
    if json:
        print_json(batch)
    else:
        print_batch(make_console(), batch, whole=True)


def events(
    batch_id: BatchId,
    limit: Limit = 1000,
    json: AsJson = False,
    filters: Filters = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Show what happened to a batch and who did it, oldest first."""
    with connected(base_url, api_key) as client:
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

    with connected(base_url, api_key) as client:
        lines = _lines(client, batch_id, offset, kind, follow=follow)
        if filters:
            lines = (orjson.dumps(one) for one in passing(map(orjson.loads, lines), filters))
        for _, line in zip(range(limit), lines, strict=False):
            sys.stdout.buffer.write(line + b"\n")
            sys.stdout.flush()


def _lines(
    client: ServiceClient, batch_id: str, offset: int, kind: Kind | None, *, follow: bool
) -> Iterator[bytes]:
    """Result lines to the end, or as far as there are."""
    from coserve.commands.service_client import POLL_S, patiently

    while True:
        ask = partial(client.results, batch_id, offset, kind)
        page = patiently(ask) if follow else ask()
        yield from page.lines
        if page.complete:
            return
        if page.next_offset == offset:
            if not follow:
                return
            time.sleep(POLL_S)
        offset = page.next_offset
