"""`coserve upgrade --check`: what starting this version would change here."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from coserve.commands.listing import AsJson
from coserve.commands.settings import read_settings
from coserve.commands.terminal import print_json, refuse
from coserve.commands.transaction import in_transaction
from service.data_folder import installs_to


def upgrade(
    check: Annotated[bool, typer.Option("--check", help="Say what would happen.")] = False,
    json: AsJson = False,
) -> None:
    """Say which migrations this version brings and what runs meanwhile; 1 if it must not start.

    To upgrade is to start the new version: docs/deploy/upgrade.md.
    """
    if not check:
        refuse(
            "Starting the new version upgrades. This verb only looks: coserve upgrade --check",
            status=2,
        )
    plan = _plan()
    if json:
        print_json(plan)
    else:
        for line in _words(plan):
            typer.echo(line)
    if plan["refused"]:
        raise typer.Exit(1)


def _plan() -> dict[str, Any]:
    from importlib.metadata import version

    from coserve.local.database import migrations
    from coserve.setup.engine_env import is_current
    from store.repositories import overview
    from store.schema import NEEDED, WrongDatabase, is_newer, reached, stored_schema
    from store.states import LIVE_STATUSES

    settings = read_settings()
    found = in_transaction(stored_schema)
    refused = "The database has no tables of coserve." if found is None else None
    newer = False
    pending = []
    try:
        if found is not None:
            newer = is_newer(found)
            at = reached(found)
            pending = [
                {"schema": schema, "title": title}
                for schema, title in migrations().items()
                if schema > at
            ]
    except WrongDatabase as error:
        refused = str(error)
    live = 0
    if not refused:
        by_status = in_transaction(overview.num_by_status)
        live = sum(by_status[status] for status in LIVE_STATUSES)
    return {
        "version": version("coserve"),
        "schema": found,
        "needed_schema": NEEDED,
        "migrations": pending,
        "live_batches": live,
        "installs_engine": not settings.engine_urls and not is_current(installs_to()),
        "refused": refused,
        "newer_database": newer,
    }


def _words(plan: dict[str, Any]) -> list[str]:
    if plan["refused"]:
        return [plan["refused"]]
    lines = [
        f"coserve {plan['version']} wants schema {plan['needed_schema']}, here is {plan['schema']}."
    ]
    if plan["newer_database"]:
        lines.append("A newer version ran on this database; this one works on it too.")
    told = (f"would run migration {one['schema']}: {one['title']}" for one in plan["migrations"])
    lines.extend(told)
    if not plan["migrations"]:
        lines.append("There is nothing to migrate.")
    if plan["installs_engine"]:
        lines.append("The engine's packages would be installed anew (minutes, with downloads).")
    lines.append(_live(plan["live_batches"]))
    lines.append("Make a backup first: coserve backup FILE")
    return lines


def _live(num: int) -> str:
    if not num:
        return "No batch is live."
    if num == 1:
        return "1 batch is live; it goes on after the restart."
    return f"{num:,} batches are live; they go on after the restart."
