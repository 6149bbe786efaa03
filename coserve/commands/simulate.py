"""`coserve simulate`: policies on a device that is not there."""

from __future__ import annotations

import typer

CONTEXT = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}


def simulate(context: typer.Context) -> None:
    """Policies on a GPU that is not there: latencies and offline tokens; --help lists options."""
    from lab.simulator.__main__ import main

    raise typer.Exit(main(context.args))
