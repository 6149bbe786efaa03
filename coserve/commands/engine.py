"""`coserve engine`: install the one of this machine, and name others beside those of ENGINE_URLS.

Gateways and dispatchers read the registry every second; nothing is restarted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from coserve.commands.engine_install import install
from coserve.commands.host import host_actor
from coserve.commands.listing import AsJson, Columns, Filters, Limit, show_list, text
from coserve.commands.terminal import refuse
from coserve.commands.transaction import in_transaction

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

app = typer.Typer(no_args_is_help=True)


app.command()(install)

Url = Annotated[str, typer.Argument(help="The engine's address, as http://host:port.")]


def _address(url: str) -> str:
    """The address in its normal form; ends the command where it is none."""
    from engine_adapter.client.engine_address import EngineAddress, NotAnAddress, shown

    try:
        return str(EngineAddress.parse(url))
    except NotAnAddress as error:
        refuse(f"{shown(url)} is not an engine's address: {error}.", status=2)


def _known(url: str) -> str:
    """The address of an engine as it is stored, which may be one that nothing can be sent to."""
    from engine_adapter.client.engine_address import why_unusable
    from store.repositories import engine as engines

    stored = {one.url for one in in_transaction(engines.list_all)}
    if url in stored or why_unusable(url):
        return url
    return _address(url)


@app.command()
def add(url: Url) -> None:
    """Use an engine, from now on."""
    from store.repositories import engine as engines

    address = _address(url)
    _act("added", address, lambda session: engines.add(session, address))
    typer.echo(f"{address} is used as soon as it answers.")


@app.command("list")
def list_(json: AsJson = False, limit: Limit = 1000, filters: Filters = None) -> None:
    """Show every engine: registered, or seen by a gateway."""
    from engine_adapter.client.engine_address import why_unusable
    from store.repositories import engine as engines

    def state(one: engines.EngineState) -> str:
        if why_unusable(one.url):
            return "not an address"
        return "draining" if one.draining else "in use"

    records = [
        {
            "url": one.url,
            "name": engines.called(one.url, one.name),
            "model": one.model,
            "from": "registered" if one.added else "ENGINE_URLS",
            "state": state(one),
            "level": one.level,
            "batch_rows": one.num_rows,
        }
        for one in in_transaction(engines.states)
    ]
    columns: Columns = {
        "engine": text("url"),
        "name": text("name"),
        "model": lambda one: one["model"] or "not known yet",
        "from": text("from"),
        "state": text("state"),
        "level": lambda one: one["level"] or "its own",
        "batch rows there": text("batch_rows"),
    }
    show_list(columns, records, json=json, limit=limit, filters=filters)


@app.command()
def drain(url: Url) -> None:
    """Send nothing new to an engine; what runs there may finish."""
    from store.repositories import engine as engines

    address = _known(url)
    _need(_act("drained", address, lambda session: engines.drain(session, address)), address)
    typer.echo(f"{address} gets nothing new. `coserve engine list` shows what is left there.")


@app.command()
def resume(url: Url) -> None:
    """Use a draining engine again."""
    from store.repositories import engine as engines

    address = _known(url)
    _need(_act("resumed", address, lambda session: engines.resume(session, address)), address)
    typer.echo(f"{address} is in use.")


@app.command()
def name(
    url: Url,
    name: Annotated[str, typer.Argument(help="What people call it; empty: by its address.")],
) -> None:
    """Give an engine a name, which dashboard and lists show beside its address."""
    from store.repositories import engine as engines

    address = _known(url)
    if not engines.is_name(name):
        refuse(f"A name has up to {engines.MAX_NAME_CHARS} printable characters.", status=2)
    _need(_act("named", address, lambda session: engines.name(session, address, name)), address)
    typer.echo(f"{address} is called {engines.called(address, name)}.")


@app.command()
def level(
    url: Url,
    level: Annotated[
        Literal["invisible", "balanced", "max", "own"],
        typer.Argument(help="How much of chat's pace batches may take; own: COSERVE_LEVEL again."),
    ],
) -> None:
    """Set the level of an engine at work, and of what starts at its address later."""
    from store.repositories import engine as engines

    address = _known(url)
    wanted = None if level == "own" else level
    _need(
        _act("level_set", address, lambda session: engines.set_level(session, address, wanted)),
        address,
    )
    typer.echo(
        f"{address} plans at {wanted} from its next step on."
        if wanted
        else f"{address} plans at its own COSERVE_LEVEL from its next start on."
    )


@app.command()
def remove(url: Url) -> None:
    """Take an engine off the registry; what runs there may finish."""
    from store.repositories import engine as engines

    address = _known(url)
    if not _act("removed", address, lambda session: engines.remove(session, address)):
        refuse(
            f"{address} is not registered. One of ENGINE_URLS can be drained, and taken out there."
        )
    typer.echo(f"{address} is removed.")


def _act(word: str, address: str, work: Callable[[AsyncSession], Awaitable[bool | None]]) -> bool:
    """Do it, and note it in the audit log in the same transaction; false where nothing was done.

    Engines are everybody's: the entry is in the log of the first organisation.
    """
    from gateway.tenants.actor import Action
    from store.models import DEFAULT_ORGANIZATION_ID

    async def noted(session: AsyncSession) -> bool:
        if await work(session) is False:
            return False
        actor = host_actor(DEFAULT_ORGANIZATION_ID)
        await actor.record(session, Action(f"engine.{word}"), address)
        return True

    return in_transaction(noted)


def _need(known: bool, address: str) -> None:
    if not known:
        refuse(f"There is no engine {address}.")
