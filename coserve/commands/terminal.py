"""How every command speaks: JSON or a table to standard output, a refusal to standard error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console

EXIT_WRONG_SETTING = 2
_WIDEST = 10_000


def refuse(*lines: object, status: int = 1) -> NoReturn:
    """End the command with what is wrong, a sentence a line.

    Raises:
        typer.Exit: Always, with `status`.
    """
    for line in lines:
        typer.echo(str(line), err=True)
    raise typer.Exit(status)


def print_json(record: object) -> None:
    """One object on one line."""
    import orjson

    typer.echo(orjson.dumps(record).decode())


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under their headings; no value is ever cut, since ids are there to be copied."""
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    wide = Console(width=_WIDEST)
    needed = Measurement.get(wide, wide.options, table).maximum
    Console(width=needed).print(table, markup=False, highlight=False, soft_wrap=True)


def make_console(*, quiet: bool = False) -> Console:
    """Where a command that follows something tells how it goes on."""
    from rich.console import Console

    return Console(soft_wrap=True, quiet=quiet)
