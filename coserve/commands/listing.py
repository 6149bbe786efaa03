"""What the reading commands share: `--json`, `--limit`, `--filter`, and how they print.

With `--json` a list is one object a line and a single thing is one object; `docs/cli.md` names
their keys, and a test holds both equal. People get a table.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any

import typer

from coserve.commands.terminal import print_json, show_table

Record = Mapping[str, Any]
Columns = Mapping[str, Callable[[Any], str]]
"""Headings of a table, each with the text of its cell."""

AsJson = Annotated[bool, typer.Option("--json", help="As JSON (docs/cli.md), not as a table.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="How many at most.")]
Filters = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        metavar="KEY=PATTERN",
        help="Only where a key of the JSON is like PATTERN, with * and ?; repeatable.",
    ),
]


def show_list(
    columns: Columns,
    records: Iterable[Record],
    *,
    json: bool,
    limit: int,
    filters: Sequence[str] | None,
) -> None:
    """Print the first `limit` records that pass the filters."""
    found = islice(passing(records, filters or ()), limit)
    if json:
        for record in found:
            print_json(record)
    else:
        rows = ([cell(record) for cell in columns.values()] for record in found)
        show_table([*columns], rows)


def passing(records: Iterable[Record], filters: Sequence[str]) -> Iterator[Record]:
    """Those that every filter lets through; ends the command where a filter is none."""
    wanted = [_parsed(each) for each in filters]
    for record in records:
        if all(
            fnmatch.fnmatchcase(_text(_at(record, key)), pattern.lower()) for key, pattern in wanted
        ):
            yield record


def _parsed(given: str) -> tuple[str, str]:
    key, equals, pattern = given.partition("=")
    if not equals or not key:
        raise typer.BadParameter(f"--filter takes KEY=PATTERN, not {given!r}")
    return key, pattern


def _at(record: Record, path: str) -> Any:
    """What stands at a dotted path; None where metadata, whose keys are its owner's, lacks it."""
    value: Any = record
    for name in path.split("."):
        if not isinstance(value, Mapping):
            return None
        if name not in value and value is record.get("metadata"):
            return None
        if name not in value:
            raise typer.BadParameter(f"--filter: no key {name!r} here; there are {_known(value)}")
        value = value[name]
    return value


def _known(record: Mapping[str, Any]) -> str:
    return ", ".join(record)


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, list):
        return ",".join(map(_text, value))
    return str(value).lower()


def text(key: str) -> Callable[[Any], str]:
    """A cell with the value of a key, a dash for none."""

    def cell(record: Record) -> str:
        value = record[key]
        return "-" if value is None or value == "" else str(value)

    return cell


def instant(key: str) -> Callable[[Any], str]:
    """A cell with the Unix seconds of a key as a time in UTC."""

    def cell(record: Record) -> str:
        return (
            "-" if record[key] is None else f"{datetime.fromtimestamp(record[key], UTC):%F %H:%M}"
        )

    return cell
