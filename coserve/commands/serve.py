"""`coserve serve PART`: one part of the stack in the foreground, for containers.

Every part reads its addresses from the environment; nothing is embedded, nothing is restarted here.
"""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import Annotated, NoReturn

import typer

from coserve.commands.settings import read_settings
from coserve.commands.terminal import refuse


class ServedPart(StrEnum):
    """What can be served alone."""

    GATEWAY = "gateway"
    MIGRATE = "migrate"
    WORKER_DISPATCH = "worker-dispatch"
    WORKER_STAGES = "worker-stages"
    WORKER_SWEEP = "worker-sweep"
    BEAT = "beat"
    WORKER_CHECK = "worker-check"
    BEAT_CHECK = "beat-check"


_NAMES = ", ".join(ServedPart)


def _part(name: str) -> ServedPart:
    try:
        return ServedPart(name)
    except ValueError:
        raise typer.BadParameter(f"there is no part {name!r}; the parts are {_NAMES}.") from None


def _become(argv: tuple[str, ...], env: dict[str, str] | None = None) -> NoReturn:
    """Replace this process, so that a container's signals reach the part itself."""
    sys.stdout.flush()
    os.execvpe(argv[0], list(argv), {**os.environ, **(env or {})})


def serve(
    part: Annotated[ServedPart, typer.Argument(parser=_part, metavar="PART")],
) -> None:
    """Run one part in the foreground (containers); the *-check parts are health checks."""
    from batch.settings import BatchSettings
    from batch.worker.commands import beat_command, worker_commands

    settings = read_settings()
    batch = BatchSettings()
    if part is ServedPart.MIGRATE:
        from coserve.local.database import MigrationFailed, migrate

        try:
            migrate(batch.database_url)
        except MigrationFailed as error:
            refuse(f"DATABASE_URL: {error}")
    elif part is ServedPart.GATEWAY:
        _become((sys.executable, "-m", "gateway"))
    elif part is ServedPart.WORKER_CHECK:
        from coserve.commands.health import worker_is_well

        raise typer.Exit(0 if worker_is_well(batch) else 1)
    elif part is ServedPart.BEAT_CHECK:
        from coserve.commands.health import beat_is_well

        raise typer.Exit(0 if beat_is_well(batch) else 1)
    else:
        # Beat keeps its schedule in the working directory: one that is ours to write to.
        settings.home_path.mkdir(parents=True, exist_ok=True)
        os.chdir(settings.home_path)
        commands = {each.name: each for each in (*worker_commands(batch), beat_command(batch))}
        _become(commands[part.value].argv, commands[part.value].env)
