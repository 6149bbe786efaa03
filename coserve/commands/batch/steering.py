"""`coserve batch pause|resume|retry|priority|cancel`: what becomes of a batch."""

from __future__ import annotations

from typing import Annotated

import typer

from coserve.commands.batch.words import BatchId, print_batch
from coserve.commands.service import ApiKey, BaseUrl, connected
from coserve.commands.terminal import make_console


def pause(batch_id: BatchId, base_url: BaseUrl = None, api_key: ApiKey = None) -> None:
    """Take a batch's rows off the engine for now; none is lost, and its window goes on."""
    with connected(base_url, api_key) as client:
        print_batch(make_console(), client.pause(batch_id))


def resume(batch_id: BatchId, base_url: BaseUrl = None, api_key: ApiKey = None) -> None:
    """Let a paused batch go on."""
    with connected(base_url, api_key) as client:
        print_batch(make_console(), client.resume(batch_id))


def retry(batch_id: BatchId, base_url: BaseUrl = None, api_key: ApiKey = None) -> None:
    """Run the rows that failed, expired or were cancelled again, as a new batch."""
    with connected(base_url, api_key) as client:
        console = make_console()
        again = client.retry(batch_id)
        console.print(f"{again['id']}: runs what {batch_id} left unanswered", highlight=False)
        print_batch(console, again)


def priority(
    batch_id: BatchId,
    value: Annotated[int, typer.Argument(min=-100, max=100, help="Higher goes first.")],
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Change a live batch's place among the batches of its project."""
    with connected(base_url, api_key) as client:
        print_batch(make_console(), client.prioritize(batch_id, value))


def cancel(batch_id: BatchId, base_url: BaseUrl = None, api_key: ApiKey = None) -> None:
    """Cancel a batch; what is finished is kept and can be downloaded."""
    with connected(base_url, api_key) as client:
        print_batch(make_console(), client.cancel(batch_id))
