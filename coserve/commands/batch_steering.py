"""`coserve batch pause|resume|priority|retry`."""

from __future__ import annotations

from typing import Annotated

import typer

from coserve.commands.batch_terminal import (
    ApiKey,
    BaseUrl,
    BatchId,
    Refusals,
    make_client,
    make_console,
    print_batch,
)


def register(app: typer.Typer) -> None:
    """Add the commands to `coserve batch`."""
    for command in (pause, resume, retry):
        app.command()(command)
    # `priority ID -10`: a negative number is no option.
    app.command(context_settings={"ignore_unknown_options": True})(priority)


def pause(batch_id: BatchId, base_url: BaseUrl = None, api_key: ApiKey = None) -> None:
    """Take a batch's rows off the engine for now; none is lost, and its window goes on."""
    console = make_console()
    with make_client(base_url, api_key) as client, Refusals():
        print_batch(console, client.pause(batch_id))


def resume(batch_id: BatchId, base_url: BaseUrl = None, api_key: ApiKey = None) -> None:
    """Let a paused batch go on."""
    console = make_console()
    with make_client(base_url, api_key) as client, Refusals():
        print_batch(console, client.resume(batch_id))


def priority(
    batch_id: BatchId,
    value: Annotated[int, typer.Argument(min=-100, max=100, help="Higher goes first.")],
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Change a live batch's place among the batches of its project."""
    console = make_console()
    with make_client(base_url, api_key) as client, Refusals():
        print_batch(console, client.prioritize(batch_id, value))


def retry(batch_id: BatchId, base_url: BaseUrl = None, api_key: ApiKey = None) -> None:
    """Run the rows that failed, expired or were cancelled again, as a new batch."""
    console = make_console()
    with make_client(base_url, api_key) as client, Refusals():
        again = client.retry(batch_id)
        console.print(f"{again['id']}: runs what {batch_id} left unanswered", highlight=False)
        print_batch(console, again)
