"""`coserve stop` and `coserve restart PART`: acts on the stack that runs here."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from coserve.commands.logs import complete_part
from coserve.commands.settings import read_settings
from coserve.commands.status import running
from coserve.commands.terminal import refuse

if TYPE_CHECKING:
    from pathlib import Path

POLL_S: Final = 0.1

Limit = Annotated[float, typer.Option("--limit-s", min=0.0, help="How long to wait for it.")]


def stop(limit_s: Limit = 60.0) -> None:
    """Stop everything, as Ctrl-C does where it was started; ends when it has ended."""
    from coserve.local.lock import find_owner

    settings = read_settings()
    owner = running(settings)
    if owner.pid is None:
        refuse("The supervisor is only starting: try again.")
    os.kill(owner.pid, signal.SIGTERM)
    limit = time.monotonic() + limit_s
    while find_owner(settings.home_path) is not None:
        if time.monotonic() > limit:
            refuse(f"Process {owner.pid} has not ended after {limit_s:.0f} s.")
        time.sleep(POLL_S)
    typer.echo("Everything has stopped.")


def restart(
    part: Annotated[
        str, typer.Argument(help="As `coserve status` shows it.", autocompletion=complete_part)
    ],
    limit_s: Limit = 600.0,
) -> None:
    """End one part in its orderly way; the supervisor starts it again. Ends when it is ready."""
    settings = read_settings()
    running(settings)
    before = _find(settings.home_path, part)
    if before["pid"] is None or before["state"] != "ready":
        refuse(f"{part} is {before['state']}, so it comes back by itself.")
    with suppress(ProcessLookupError):
        os.kill(before["pid"], signal.SIGTERM)
    limit = time.monotonic() + limit_s
    while True:
        now = _find(settings.home_path, part)
        if now["state"] == "ready" and now["restarts"] > before["restarts"]:
            typer.echo(f"{part} is ready again.")
            return
        if time.monotonic() > limit:
            late = f"{part} is {now['state']} after {limit_s:.0f} s. Log: {now['log']}"
            refuse(late)
        time.sleep(POLL_S)


def _find(home: Path, name: str) -> dict[str, Any]:
    from coserve.local.snapshot import parts_of

    parts = {part["name"]: part for part in parts_of(home)}
    if name not in parts:
        refuse(f"There is no part {name!r} here; there are {', '.join(parts) or 'none'}.")
    return parts[name]
