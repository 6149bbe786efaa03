"""`coserve bench`: benchmarks that come with the checkout."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import typer

CHECKOUT = Path(__file__).parents[2]

app = typer.Typer(help="Benchmarks; they need the checkout.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Benchmarks; they need the checkout."""


@app.command(
    "coserve",
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],
    },
)
def coserve(context: typer.Context) -> None:
    """Online beside offline requests, stock SGLang against ours; --help lists the options."""
    if not (CHECKOUT / "bench" / "coserve_bench").is_dir():
        typer.echo("The benchmark is not part of the installed package: run it in a checkout.")
        raise typer.Exit(1)
    # The benchmark is no installed package; it lies beside the ones that are.
    sys.path.insert(0, str(CHECKOUT))
    command = importlib.import_module("bench.coserve_bench.__main__")
    raise typer.Exit(command.main(context.args))
