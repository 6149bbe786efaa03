"""`coserve plan`: how many GPUs, how much harvest, and when a batch is done."""

from __future__ import annotations

import typer

CONTEXT = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}


def plan(context: typer.Context) -> None:
    """GPUs chat needs, tokens a day they harvest, when a batch is done; --help lists options."""
    from lab.simulator.sizing import main

    raise typer.Exit(main(context.args))
