"""`coserve file`: list the files of a project, and delete those that are not needed."""

from __future__ import annotations

from typing import Annotated

import typer

from coserve.commands.listing import AsJson, Columns, Filters, Limit, instant, show_list, text
from coserve.commands.service import ApiKey, BaseUrl, connected

app = typer.Typer(no_args_is_help=True)

_COLUMNS: Columns = {
    "id": text("id"),
    "name": text("filename"),
    "purpose": text("purpose"),
    "bytes": lambda file: f"{file['bytes']:,}",
    "created": instant("created_at"),
    "expires": instant("expires_at"),
}


@app.command("list")
def list_(
    limit: Limit = 20,
    json: AsJson = False,
    filters: Filters = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """List files, newest first."""
    with connected(base_url, api_key) as client:
        show_list(_COLUMNS, client.files(), json=json, limit=limit, filters=filters)


@app.command()
def delete(
    file_ids: Annotated[list[str], typer.Argument(help="Ids of files, file-...")],
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Delete files. One that a live batch reads is kept, and the command ends there."""
    with connected(base_url, api_key) as client:
        for file_id in file_ids:
            client.delete_file(file_id)
            typer.echo(f"{file_id} is deleted.")
