"""`coserve serve PART`: one part of the stack in the foreground, for containers.

Every part reads its addresses from the environment; nothing is embedded, nothing is restarted here.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from coserve.commands.settings import read_settings
from coserve.commands.terminal import refuse

if TYPE_CHECKING:
    from batch.settings import BatchSettings


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


_CHECK_LIMIT_S = 10.0


def _become(argv: tuple[str, ...], env: dict[str, str] | None = None) -> NoReturn:
    """Replace this process, so that a container's signals reach the part itself."""
    sys.stdout.flush()
    os.execvpe(argv[0], list(argv), {**os.environ, **(env or {})})


def beat_is_main_process(proc: Path = Path("/proc")) -> bool:
    """Whether the first process of this container is beat (a container runs one part)."""
    try:
        said = (proc / "1" / "cmdline").read_text(errors="replace")
    except OSError:
        return False
    # Celery calls itself `[celery beat] …` once it runs.
    return {"celery", "beat"} <= set(re.split(r"[\0 \[\]]+", said))


def _worker_is_well(settings: BatchSettings) -> bool:
    from batch.worker.app import make_app
    from coserve.commands import worker_check

    name = worker_check.worker_name(1)
    if name is None or not worker_check.pool_runs(1):
        return False
    return worker_check.answers(make_app(settings), name)


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
        raise typer.Exit(0 if _worker_is_well(batch) else 1)
    elif part is ServedPart.BEAT_CHECK:
        healthy = beat_is_main_process() and not asyncio.run(batch.broker.fault(_CHECK_LIMIT_S))
        raise typer.Exit(0 if healthy else 1)
    else:
        # Beat keeps its schedule in the working directory: one that is ours to write to.
        settings.home_path.mkdir(parents=True, exist_ok=True)
        os.chdir(settings.home_path)
        commands = {each.name: each for each in (*worker_commands(batch), beat_command(batch))}
        _become(commands[part.value].argv, commands[part.value].env)
