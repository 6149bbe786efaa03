"""`coserve logs`: what the parts wrote, each line with its part before it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final, TextIO

import typer

from coserve.commands.listing import AsJson
from coserve.commands.settings import read_settings
from coserve.commands.terminal import print_json, refuse

POLL_S: Final = 0.2


def _names(home: Path) -> list[str]:
    return sorted(path.stem for path in (home / "log").glob("*.log"))


def complete_part(incomplete: str) -> list[str]:
    """Names of parts for the shell."""
    return [name for name in _names(read_settings().home_path) if name.startswith(incomplete)]


PartName = Annotated[
    str | None,
    typer.Argument(
        help="As `coserve status` shows it; all by default.", autocompletion=complete_part
    ),
]


def logs(
    part: PartName = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines come.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of each.")] = 20,
    json: AsJson = False,
) -> None:
    """Show the end of the parts' logs; -f goes on until Ctrl-C."""
    home = read_settings().home_path
    names = _names(home)
    if part is not None and part not in names:
        there = ", ".join(names) or "none"
        refuse(f"There is no log of {part!r}; there are {there}.")
    wanted = [part] if part is not None else names
    width = max(map(len, wanted), default=0)

    def show(name: str, line: str) -> None:
        if json:
            print_json({"part": name, "line": line})
        else:
            typer.echo(line if part is not None else f"{name:<{width}} | {line}")

    tails = [Tail(home / "log" / f"{name}.log") for name in wanted]
    for tail in tails:
        for line in tail.last(lines):
            show(tail.name, line)
    try:
        while follow:
            for name, line in fresh(tails):
                show(name, line)
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        return
    finally:
        for tail in tails:
            tail.close()


def fresh(tails: Sequence[Tail]) -> Iterator[tuple[str, str]]:
    """Whole lines that came since the last call, with the part's name."""
    for tail in tails:
        for line in tail.more():
            yield tail.name, line


class Tail:
    """The end of one log, also across its rotation."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self._path = path
        self._file: TextIO | None = None
        self._partial = ""

    def last(self, num: int) -> list[str]:
        """The last lines so far; `more` goes on after them."""
        file = self._open()
        lines = file.read().splitlines() if file is not None else []
        return lines[-num:] if num else []

    def more(self) -> Iterator[str]:
        """Whole lines that came since; the old file is read to its end when it was rotated."""
        if self._file is not None:
            yield from self._whole(self._file.read())
            if self._is_current():
                return
            self._file.close()
        file = self._open()
        if file is not None:
            yield from self._whole(file.read())

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()

    def _whole(self, text: str) -> list[str]:
        *lines, self._partial = (self._partial + text).split("\n")
        return lines

    def _is_current(self) -> bool:
        assert self._file is not None
        try:
            return os.fstat(self._file.fileno()).st_ino == self._path.stat().st_ino
        except FileNotFoundError:
            return True

    def _open(self) -> TextIO | None:
        try:
            self._file = self._path.open(errors="replace")
        except FileNotFoundError:
            self._file = None
        return self._file
