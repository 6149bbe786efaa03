"""`coserve batch download`: the output and error files of a batch that is over."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coserve.commands.batch.words import BatchId
from coserve.commands.service import ApiKey, BaseUrl, connected
from coserve.commands.terminal import make_console
from store.states import TERMINAL_BATCH, BatchStatus

if TYPE_CHECKING:
    from rich.console import Console

    from coserve.commands.service_client import ServiceClient

Folder = Annotated[
    Path | None, typer.Option("--dir", file_okay=False, help="Where downloads are written.")
]


def download(
    batch_id: BatchId,
    directory: Folder = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Fetch the output and error files of a batch that is over."""
    console = make_console()
    with connected(base_url, api_key) as client:
        batch = client.get(batch_id)
        if not fetch_results(console, client, batch, directory or Path(), batch_id):
            console.print(_nothing_tofetch_results(batch), highlight=False)
            raise typer.Exit(1)


def _nothing_tofetch_results(batch: dict[str, Any]) -> str:
    """Why, and where to look instead."""
    if batch["status"] == BatchStatus.FAILED:
        return f"It failed in validation: coserve batch get {batch['id']} lists the errors."
    if batch["status"] in TERMINAL_BATCH:
        return f"Nothing to download: no row of the batch has a result ({batch['status']})."
    return f"It is {batch['status']}. The results so far: coserve batch results {batch['id']}"


def fetch_results(
    console: Console, client: ServiceClient, batch: dict[str, Any], folder: Path, stem: str
) -> int:
    """Fetch what there is; returns how many files."""
    num_files = 0
    folder.mkdir(parents=True, exist_ok=True)
    for kind, file_id in (("output", batch["output_file_id"]), ("errors", batch["error_file_id"])):
        if file_id is not None:
            path = folder / f"{stem}.{kind}.jsonl"
            size_bytes = client.download(file_id, path)
            console.print(f"{path}: {size_bytes:,} bytes", highlight=False)
            num_files += 1
    return num_files
