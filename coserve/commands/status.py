"""`coserve status`: what runs on this state directory."""

from __future__ import annotations

import json
import time
from typing import Any

import typer

from coserve.commands.table import show_table
from coserve.commands.up import read_settings


def _age(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _profile(url: str) -> str:
    """What `/statusz` says about the engine's profile; empty if it says nothing."""
    from coserve.local.probes import http_get

    reply = http_get(f"{url}/statusz")
    try:
        return str(json.loads(reply.body)["parts"]["engine"]["profile"] or "") if reply else ""
    except (ValueError, KeyError, TypeError):
        return ""


def status() -> None:
    """Show every part of the running stack; exit status 3 when nothing runs."""
    from coserve.local.lock import find_owner
    from coserve.local.supervisor import STATE_FILE

    settings = read_settings()
    owner = find_owner(settings.home_path)
    if owner is None:
        typer.echo(f"coserve is not running (state directory {settings.home_path}).")
        raise typer.Exit(3)
    try:
        state: dict[str, Any] = json.loads((settings.home_path / STATE_FILE).read_text())
    except (OSError, ValueError):
        state = {"parts": []}
    typer.echo(f"coserve is running (process {owner.pid}): {owner.url}")
    now_s = time.monotonic()
    rows = [
        (
            part["name"],
            part["state"],
            _age(now_s - part["since_s"]),
            str(part["restarts"]),
            str(part["pid"] or "-"),
            part["log"],
        )
        for part in state["parts"]
    ]
    show_table(("part", "state", "for", "restarts", "process", "log"), rows)
    measured = _profile(owner.url) if owner.url else ""
    if measured:
        typer.echo(f"profile: {measured}")
