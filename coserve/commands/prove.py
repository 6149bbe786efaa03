"""`coserve prove`: chat alone and beside a batch, on this machine, as a page and as JSON."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from coserve.commands.engine_install import install_engine
from coserve.commands.service import ApiKey, BaseUrl, connected
from coserve.commands.settings import read_settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from coserve.commands.service_client import ServiceClient
    from coserve.prove.clients import Server
    from coserve.prove.findings import Taken
    from coserve.prove.run import Schedule

TOO_FEW: Final = 3
FORMAT: Final = 1
"""Of the JSON; a change that readers notice makes it another number."""


def prove(  # noqa: PLR0913
    minutes: Annotated[
        float, typer.Option(min=0.1, help="For all systems together; phases of about a minute.")
    ] = 10.0,
    rate: Annotated[
        float, typer.Option(min=0.0, help="Chats a second; 0: by what the engine answers at once.")
    ] = 0.0,
    stock: Annotated[
        str,
        typer.Option(
            help="Compare with a server without coserve: its address with /v1, or sglang to start "
            "the one that is installed here; its GPU must have room for both."
        ),
    ] = "",
    stock_rows: Annotated[
        int, typer.Option(min=1, help="Rows that the other server has at once.")
    ] = 64,
    model: Annotated[str | None, typer.Option(help="By default the first that is served.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for prove.html and prove.json.")] = Path(),
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Measure what chat pays for a batch here, and write a page and a JSON file of it.

    Exits with 3 where too few chats were answered to claim anything.
    """
    from coserve.prove.findings import ALONE, claims, figures
    from coserve.prove.machine import machine, versions
    from coserve.prove.run import Schedule
    from coserve.setup.engine_env import engine_python
    from service.clock import SystemClock
    from service.data_folder import installs_to

    remarks: list[str] = []
    with connected(base_url, api_key) as client:
        server = _server(client, model, base_url, api_key)
        facts = client.model(server.model)
        before = machine()
        chats_per_s = rate or _probed(server)
        seconds = 60 * minutes / (3 if stock else 2)
        schedule = Schedule.of(chats_per_s, seconds)
        _say(f"{server.model}: {chats_per_s:.2f} chats a second, {seconds:.0f} s of each system")
        taken = _beside(client, server, schedule, remarks)
        if stock:
            taken |= _without(stock, server.model, stock_rows, schedule, remarks)
    found = claims(taken, chats_per_s)
    report: dict[str, Any] = {
        "coserve_prove": FORMAT,
        "at": SystemClock().now().isoformat(timespec="seconds"),
        "model": facts,
        "chats_per_s": chats_per_s,
        "seconds_each": seconds,
        "systems": {name: figures(one, taken[ALONE]) for name, one in taken.items()},
        "claims": found.made,
        "refused": found.refused,
        "remarks": remarks,
        "machine": before,
        "versions": versions(engine_python(installs_to())),
    }
    _write(out, report, taken)
    for line in (*found.made, *found.refused, *remarks):
        typer.echo(line)
    typer.echo(f"{out / 'prove.html'} and {out / 'prove.json'}")
    if not found.made:
        raise typer.Exit(TOO_FEW)


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _server(
    client: ServiceClient, model: str | None, base_url: str | None, api_key: str | None
) -> Server:
    """The service, and the model to ask: the one that is named, or the first that is served."""
    from coserve.commands.service_client import find_base_url, find_key
    from coserve.prove.clients import Server

    return Server(find_base_url(base_url), client.model_to_ask(model), find_key(api_key))


def _probed(server: Server) -> float:
    """Chats a second that leave the engine room for a batch."""
    from coserve.commands.service_client import ServiceError
    from coserve.prove.run import NoAnswerError, probe

    try:
        return asyncio.run(probe(server))
    except NoAnswerError as error:
        raise ServiceError(f"The service answers no chat: {error}") from None


def _beside(
    client: ServiceClient, server: Server, schedule: Schedule, remarks: list[str]
) -> dict[str, Taken]:
    """Chat alone and beside a batch; the batch is gone afterwards, whatever happens."""
    from coserve.prove.batch import Batch
    from coserve.prove.run import beside

    _say("the batch is uploaded and checked")
    batch = Batch(client, server.model)
    try:
        taken = asyncio.run(beside(server, batch, schedule, _say))
        if batch.over:
            remarks.append("The batch ended before the last phase: more could have been harvested.")
        return taken
    finally:
        batch.remove()


def _without(
    given: str, model: str, num_rows: int, schedule: Schedule, remarks: list[str]
) -> dict[str, Taken]:
    """The same chats at a server without coserve; nothing where it does not start."""
    from coserve.prove.findings import STOCK
    from coserve.prove.run import stock
    from coserve.prove.stock import StockFailed

    try:
        with _stock(given, model) as other:
            return {STOCK: asyncio.run(stock(other, num_rows, schedule, _say))}
    except StockFailed as failed:
        remarks.append(f"Not compared with an engine without coserve: {failed}")
        return {}


def _write(out: Path, report: Mapping[str, Any], taken: Mapping[str, Taken]) -> None:
    """The page and the JSON file of a run."""
    import json

    from coserve.prove.page import render

    out.mkdir(parents=True, exist_ok=True)
    (out / "prove.json").write_text(json.dumps(report, indent=1) + "\n")
    page = render(report, {name: one.ttfts_s for name, one in taken.items()})
    (out / "prove.html").write_text(page)


def _stock(given: str, model: str) -> AbstractContextManager[Server]:
    """The server without coserve, which is there or is started."""
    from coserve.prove.clients import Server
    from coserve.prove.stock import StockFailed, stock_engine

    if given != "sglang":
        return nullcontext(Server(given.rstrip("/"), model))
    settings = read_settings()
    install = install_engine(settings)
    if install is None:
        raise StockFailed("ENGINE_URLS is set, so there is no engine of this machine.")
    return stock_engine(install, settings.home_path / "log" / "stock.log")
