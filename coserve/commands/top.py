"""`coserve top`: the overview in the terminal, drawn anew until Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coserve.commands.listing import AsJson
from coserve.commands.status import COLOURS, current_state, figures, verdict
from coserve.commands.terminal import print_json

if TYPE_CHECKING:
    from rich.console import Group


def top(
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Draw it once and end.")] = False,
    json: AsJson = False,
) -> None:
    """Show chat's latencies, tokens, memory, parts and live batches, drawn anew until Ctrl-C.

    With --json each look is one object, in the shape of `coserve status --json`.
    """
    from rich.console import Console
    from rich.live import Live

    if json:
        _print_snapshots(every, once=once)
        return
    console = Console()
    seen = current_state()
    if once:
        console.print(drawn(seen))
        return
    try:
        with Live(
            drawn(seen), console=console, screen=console.is_terminal, auto_refresh=False
        ) as live:
            while True:
                time.sleep(every)
                live.update(drawn(current_state()), refresh=True)
    except KeyboardInterrupt:
        return


def _print_snapshots(every: float, *, once: bool) -> None:
    try:
        while True:
            print_json(current_state())
            if once:
                return
            time.sleep(every)
    except KeyboardInterrupt:
        return


def drawn(seen: Mapping[str, Any]) -> Group:
    """One look as it is drawn."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts = Table("part", "state", "restarts", box=None, pad_edge=False)
    for part in seen["parts"]:
        parts.add_row(part["name"], part["state"], str(part["restarts"]))
    batches = Table(
        "batch", "file", "status", "done", "at engine", "predicted end", box=None, pad_edge=False
    )
    for one in seen["batches"]:
        state = "paused" if one["paused"] else one["waiting_reason"] or one["status"]
        done = f"{one['completed'] + one['failed']:,}/{one['total']:,}"
        batches.add_row(one["id"], one["file"], state, done, str(one["at_engine"]), _finish(one))
    head = f"coserve {seen['version']}  {seen['urls']['api'] or ''}  {seen['status'] or 'away'}"
    judged = [Text(line, style=COLOURS.get(tone, "")) for tone, line in verdict(seen)]
    lines = [Text(line) for line in figures(seen)]
    return Group(
        Text(head, style="bold"), *judged, Text(""), *lines, Text(""), batches, Text(""), parts
    )


def _finish(batch: Mapping[str, Any]) -> str:
    predicted = batch["predicted_finish_at"]
    if predicted is None:
        return "–"
    late = " (late)" if predicted > batch["expires_at"] else ""
    return f"{datetime.fromtimestamp(predicted, UTC):%m-%d %H:%M}{late}"
