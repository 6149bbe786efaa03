"""`coserve doctor`: what keeps coserve from running well here, each fault with its fix."""

from __future__ import annotations

import typer

from coserve.commands.listing import AsJson
from coserve.commands.settings import read_settings
from coserve.commands.terminal import print_json, show_table
from service.data_folder import installs_to


def doctor(json: AsJson = False) -> None:
    """Look at host, disk, memory, GPU, packages, database, broker and engines; 1 if one is bad."""
    from dataclasses import asdict

    from batch.settings import BatchSettings
    from coserve.checkup.examine import Case, examine
    from coserve.local import postgres
    from coserve.local.lock import find_owner

    settings = read_settings(all_parts=True)
    home = settings.home_path
    owner = find_owner(home)
    running_url = postgres.running_url(home) if owner else None
    case = Case(
        settings=settings,
        checkout=installs_to(),
        owner=owner,
        database_url=settings.database_url or running_url,
        broker=BatchSettings().broker if settings.broker_url else None,
    )
    findings = list(examine(case))
    if json:
        for one in findings:
            print_json(asdict(one))
    else:
        show_table(("", "what", "found"), ((one.state, one.name, one.found) for one in findings))
        for one in findings:
            if one.fix and one.state != "good":
                typer.echo(f"{one.name}: {one.fix}")
    if any(one.state == "bad" for one in findings):
        raise typer.Exit(1)
