"""`coserve webhook`: the webhook endpoints of a project, and every act on one."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from coserve.commands.listing import (
    AsJson,
    Columns,
    Filters,
    Limit,
    instant,
    show_list,
    text,
)
from coserve.commands.service import ApiKey, BaseUrl, connected
from coserve.commands.terminal import print_json

app = typer.Typer(no_args_is_help=True)

EndpointId = Annotated[str, typer.Argument(help="The endpoint's id, we_...")]
Event = Annotated[
    list[str] | None,
    typer.Option("--event", help="Such as batch.completed; repeatable, by default all."),
]

_COLUMNS: Columns = {
    "id": text("id"),
    "name": text("name"),
    "url": text("url"),
    "status": lambda one: str(one["coserve"]["status"]),
    "events": lambda one: ", ".join(kind.removeprefix("batch.") for kind in one["event_types"]),
    "created": instant("created_at"),
}


@app.command("list")
def list_(
    limit: Limit = 20,
    json: AsJson = False,
    filters: Filters = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """List webhook endpoints, newest first."""
    with connected(base_url, api_key) as client:
        show_list(_COLUMNS, client.webhooks(), json=json, limit=limit, filters=filters)


@app.command()
def create(
    url: Annotated[str, typer.Argument(help="Where events are sent.")],
    name: Annotated[str, typer.Option(help="What it is called.")],
    event: Event = None,
    json: AsJson = False,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Register an endpoint. Its signing secret is printed once."""
    with connected(base_url, api_key) as client:
        kinds = event or client.webhook_events()
        made = client.webhook("", {"name": name, "url": url, "event_types": kinds})
    _print(made, json=json)


@app.command()
def edit(
    endpoint_id: EndpointId,
    name: Annotated[str | None, typer.Option(help="A new name.")] = None,
    url: Annotated[str | None, typer.Option(help="A new URL.")] = None,
    event: Event = None,
    json: AsJson = False,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Change the name, the URL or the events of an endpoint."""
    told = {"name": name, "url": url, "event_types": event}
    changes = {key: value for key, value in told.items() if value is not None}
    if not changes:
        raise typer.BadParameter("Give --name, --url or --event.")
    with connected(base_url, api_key) as client:
        _print(client.webhook(endpoint_id, changes), json=json)


@app.command()
def rotate(
    endpoint_id: EndpointId,
    keep_old: Annotated[
        bool, typer.Option("--keep-old", help="Sign with the old secret too for 24 hours.")
    ] = False,
    json: AsJson = False,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Give an endpoint a new signing secret, printed once."""
    body = {"keep_old_secret_active_for_24_hours": keep_old}
    with connected(base_url, api_key) as client:
        _print(client.webhook(f"{endpoint_id}/rotate_secret", body), json=json)


@app.command()
def disable(endpoint_id: EndpointId, base_url: BaseUrl = None, api_key: ApiKey = None) -> None:
    """Send an endpoint nothing until it is enabled again."""
    with connected(base_url, api_key) as client:
        client.webhook(endpoint_id, {"coserve": {"disabled": True}})
    typer.echo(f"{endpoint_id} is disabled.")


@app.command()
def enable(endpoint_id: EndpointId, base_url: BaseUrl = None, api_key: ApiKey = None) -> None:
    """Send an endpoint its events again."""
    with connected(base_url, api_key) as client:
        client.webhook(endpoint_id, {"coserve": {"disabled": False}})
    typer.echo(f"{endpoint_id} is enabled.")


@app.command("test")
def send_sample(
    endpoint_id: EndpointId,
    event: Annotated[str, typer.Option(help="The event of the sample.")] = "batch.completed",
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Send a sample event now and print the receiver's answer."""
    with connected(base_url, api_key) as client:
        tried = client.webhook(f"{endpoint_id}/test", {"event_type": event})
    typer.echo(f"{endpoint_id} answered with {tried['status_code']}.")


@app.command()
def delete(endpoint_id: EndpointId, base_url: BaseUrl = None, api_key: ApiKey = None) -> None:
    """Delete an endpoint and what waits for it."""
    with connected(base_url, api_key) as client:
        client.delete_webhook(endpoint_id)
    typer.echo(f"{endpoint_id} is deleted.")


def _print(endpoint: dict[str, Any], *, json: bool) -> None:
    if json:
        print_json(endpoint)
        return
    typer.echo(f"{endpoint['id']}: {endpoint['name']}, {endpoint['url']}")
    if "signing_secret" in endpoint:
        typer.echo(f"signing secret, shown once: {endpoint['signing_secret']}")
