"""`coserve simulate`, `plan` and `bench`: research, which comes with a checkout."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import typer

from coserve.commands.terminal import refuse
from service.data_folder import PACKAGES

CONTEXT: dict[str, Any] = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}

bench = typer.Typer(help="Benchmarks; they need the checkout.", no_args_is_help=True)


def simulate(context: typer.Context) -> None:
    """Policies on a GPU that is not there: latencies and offline tokens; --help lists options."""
    raise typer.Exit(_main("lab.simulator.__main__")(context.args))


def plan(context: typer.Context) -> None:
    """GPUs chat needs, tokens a day they harvest, when a batch is done; --help lists options."""
    raise typer.Exit(_main("lab.simulator.sizing")(context.args))


@bench.callback()
def benchmarks() -> None:
    """Benchmarks; they need the checkout."""


@bench.command("coserve", context_settings=CONTEXT)
def coserve(context: typer.Context) -> None:
    """Online beside offline requests, stock SGLang against ours; --help lists the options."""
    raise typer.Exit(_main("bench.coserve_bench.__main__")(context.args))


def _main(module: str) -> Callable[[list[str]], int]:
    package = module.partition(".")[0]
    if not (PACKAGES / package).is_dir():
        refuse("This is not part of the installed package: run it in a checkout.")
    sys.path.insert(0, str(PACKAGES))
    main: Callable[[list[str]], int] = importlib.import_module(module).main
    return main
