"""`coserve up`: set up what is missing, start everything, stay in the foreground."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from coserve.commands.engine_install import install_engine
from coserve.commands.settings import profiles_folder, read_settings
from coserve.commands.terminal import EXIT_WRONG_SETTING, refuse
from service.data_folder import installs_to

if TYPE_CHECKING:
    from coserve.local.lock import HomeLock
    from coserve.local.plans import EngineInstall
    from coserve.settings import LocalSettings


def say(line: str) -> None:
    """Print a line; a reader that went away must not end the stack."""
    try:
        print(line, flush=True)  # noqa: T201 - this is what the command shows
    except OSError:
        return


def _end_set_up(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    raise SystemExit(128 + number)


def up(
    service_setup_s: Annotated[float, typer.Option(hidden=True)] = 0.0,
) -> None:
    """Start everything and stay in the foreground; Ctrl-C stops it."""
    from coserve.local.lock import AlreadyRunningError, HomeLock
    from coserve.local.probes import why_port_unusable
    from coserve.setup.host import why_unsupported

    settings = read_settings(all_parts=True)
    unsupported = why_unsupported()
    if unsupported:
        refuse(unsupported, status=EXIT_WRONG_SETTING)
    try:
        settings.home_path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = HomeLock(settings.home_path, settings.root_url)
    except AlreadyRunningError as error:
        refuse(error)
    except OSError as error:
        refuse(
            f"COSERVE_HOME: {settings.home_path} cannot be used: {error.strerror}.",
            status=EXIT_WRONG_SETTING,
        )
    unusable = why_port_unusable(settings.host, settings.port)
    if unusable:
        refuse(unusable, status=EXIT_WRONG_SETTING)
    # What is downloaded or converted meanwhile runs as our child: end it when we are ended.
    signal.signal(signal.SIGTERM, _end_set_up)
    started_at = time.monotonic()
    try:
        engine = install_engine(settings)
    except KeyboardInterrupt:
        say("\nStopped. What is installed stays; the same command goes on from there.")
        raise SystemExit(130) from None
    set_up_s = time.monotonic() - started_at + service_setup_s
    _run(settings, lock, engine, set_up_s)


def _run(
    settings: LocalSettings, lock: HomeLock, engine: EngineInstall | None, set_up_s: float
) -> None:
    import asyncio

    from coserve.local.errors import LocalError
    from coserve.local.part import RefusedError
    from coserve.local.stack import Stack

    stack = Stack(settings, lock, engine, say=say)

    def ready(key: str, took_s: float) -> None:
        shown = shown_key(settings, key, terminal=sys.stdout.isatty())
        for line in ready_lines(settings, shown, took_s, set_up_s):
            say(line)

    status = 0
    try:
        asyncio.run(stack.run(ready))
    except* LocalError as group:
        status = EXIT_WRONG_SETTING if group.subgroup(RefusedError) else 1
        for line in sorted(set(leaf_messages(group))):
            typer.echo(line, err=True)
    if status:
        sys.exit(status)


def leaf_messages(group: BaseExceptionGroup[BaseException]) -> list[str]:
    """The messages of all exceptions in a tree of groups."""
    found: list[str] = []
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            found += leaf_messages(error)
        else:
            found.append(str(error))
    return found


def measuring_lines(settings: LocalSettings, environ: Mapping[str, str]) -> list[str]:
    """Why a core is busy after the first start: the engine of a new model measures itself."""
    measures = not settings.engine_urls and environ.get("COSERVE_POLICY") != "off"
    if not measures or any(profiles_folder(settings, environ).glob("*.json")):
        return []
    return [
        "The engine serves, and measures once how long its steps take: some minutes of one core",
        "while nobody asks it anything. `coserve status` says when that is done.",
        "",
    ]


def shown_key(settings: LocalSettings, key: str, *, terminal: bool) -> str:
    """The admin key at a terminal; its file's path in a log, which others read and keep."""
    return key if terminal else f"in {settings.home_path / 'admin-key'}"


def ready_lines(settings: LocalSettings, key: str, took_s: float, set_up_s: float) -> list[str]:
    """What is printed when everything answers; `key` as `shown_key` has it."""
    from coserve.setup.verbs import ALREADY_SET_UP_S, sizes

    lines = [f"Ready in {took_s:.1f} s."]
    if set_up_s > ALREADY_SET_UP_S:
        lines = [
            f"Set up in {set_up_s:.0f} s, started in {took_s:.1f} s.",
            f"On disk: {sizes(installs_to(), settings.home_path)}.",
        ]
    return [
        "",
        *lines,
        "",
        f"  base URL   {settings.root_url}/v1",
        f"  API key    {key}",
        f"  dashboard  {settings.root_url}/admin",
        f"  logs       {settings.home_path / 'log'}",
        "",
        *measuring_lines(settings, os.environ),
        "Ctrl-C stops everything.",
    ]
