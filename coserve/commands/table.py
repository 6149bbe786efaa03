"""A table on the terminal that never cuts a value: ids are there to be copied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_WIDEST = 10_000


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under their headings, each column as wide as its widest value."""
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
