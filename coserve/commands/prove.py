"""`coserve prove`: chat alone and beside a batch, on this machine, as a page and as JSON."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from coserve.commands.batch_terminal import ApiKey, BaseUrl, Refusals, make_client

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from coserve.prove.clients import Server

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
    import json

    from coserve.commands.batch_client import ServiceError, find_base_url, find_key
    from coserve.prove.clients import Server
    from coserve.prove.findings import ALONE, STOCK, claims, figures
    from coserve.prove.machine import machine, versions
    from coserve.prove.page import render
    from coserve.prove.run import NoAnswerError, Schedule, probe
    from coserve.prove.run import stock as run_stock
    from coserve.prove.stock import StockFailed
    from coserve.setup.engine_env import engine_python
    from service.clock import SystemClock
    from service.data_folder import installs_to

    def say(line: str) -> None:
        typer.echo(line, err=True)

    remarks: list[str] = []
    with make_client(base_url, api_key) as client, Refusals():
        asked = client.models()
        if not asked:
            raise ServiceError("No engine has answered yet, so there is no model to ask.")
        chosen = model or asked[0]
        facts = client.model(chosen)
        server = Server(find_base_url(base_url), chosen, find_key(api_key))
        before = machine()
        try:
            chats_per_s = rate or asyncio.run(probe(server))
        except NoAnswerError as error:
            raise ServiceError(f"The service answers no chat: {error}") from None
        seconds = 60 * minutes / (3 if stock else 2)
        schedule = Schedule.of(chats_per_s, seconds)
        say(f"{chosen}: {chats_per_s:.2f} chats a second, {seconds:.0f} s of each system")
        taken = _beside(client, server, schedule, say, remarks)
        if stock:
            try:
                with _stock(stock, chosen) as other:
                    taken[STOCK] = asyncio.run(run_stock(other, stock_rows, schedule, say))
            except StockFailed as failed:
                remarks.append(f"Not compared with an engine without coserve: {failed}")
    found = claims(taken, chats_per_s)
    report: dict[str, Any] = {
        "coserve_prove": FORMAT,
        "at": SystemClock().now().isoformat(timespec="seconds"),
        "model": facts,
        "chats_per_s": chats_per_s,
        "seconds_each": seconds,
        "systems": {name: figures(one, taken[ALONE]) for name, one in taken.items()},
        "claims": found.said,
        "refused": found.refused,
        "remarks": remarks,
        "machine": before,
        "versions": versions(engine_python(installs_to())),
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "prove.json").write_text(json.dumps(report, indent=1) + "\n")
    page = render(report, {name: one.ttfts_s for name, one in taken.items()})
    (out / "prove.html").write_text(page)
    for line in (*found.said, *found.refused, *remarks):
        typer.echo(line)
    typer.echo(f"{out / 'prove.html'} and {out / 'prove.json'}")
    if not found.said:
        raise typer.Exit(TOO_FEW)


def _beside(client: Any, server: Server, schedule: Any, say: Any, remarks: list[str]) -> Any:
    """Both systems of ours; the batch is gone afterwards, whatever happens."""
    from coserve.prove.batch import Batch
    from coserve.prove.run import beside

    say("the batch is uploaded and checked")
    batch = Batch(client, server.model)
    try:
        taken = asyncio.run(beside(server, batch, schedule, say))
        if batch.over:
            remarks.append("The batch ended before the last phase: more could have been harvested.")
        return taken
    finally:
        batch.remove()


def _stock(given: str, model: str) -> AbstractContextManager[Server]:
    """The server without coserve, which is there or is started."""
    from coserve.commands.up import install_engine, read_settings
    from coserve.prove.clients import Server
    from coserve.prove.stock import StockFailed, stock_engine

    if given != "sglang":
        return nullcontext(Server(given.rstrip("/"), model))
    settings = read_settings()
    install = install_engine(settings)
    if install is None:
        raise StockFailed("ENGINE_URLS is set, so there is no engine of this machine.")
    return stock_engine(install, settings.home_path / "log" / "stock.log")
