"""`coserve status`: what runs on this state directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import typer

from coserve.commands.listing import AsJson
from coserve.commands.settings import read_settings
from coserve.commands.terminal import print_json, show_table
from gateway.dashboard.wording import share
from service.data_folder import PACKAGES

if TYPE_CHECKING:
    from coserve.local.lock import Owner
    from coserve.settings import LocalSettings

NOT_RUNNING = 3
DEGRADED = 4
COLOURS = {"good": "green", "warn": "yellow", "bad": "red"}
"""Of the tones of a verdict; without one it is in the terminal's own colour."""


def running(settings: LocalSettings) -> Owner:
    """Which stack runs on the state directory; exits with 3 when none does."""
    from coserve.local.lock import find_owner

    owner = find_owner(settings.home_path)
    if owner is None:
        home = settings.home_path.absolute()
        typer.echo(f"coserve is not running: looked in {home}.")
        elsewhere = (PACKAGES / ".coserve").absolute()
        if elsewhere != home and find_owner(elsewhere) is not None:
            typer.echo(f"It runs on another state directory: set COSERVE_HOME={elsewhere}")
        else:
            typer.echo("Run this where it was started, or set COSERVE_HOME to its state directory.")
        raise typer.Exit(NOT_RUNNING)
    return owner


def current_state() -> dict[str, Any]:
    """What runs now; ends the command with status 3 where nothing does."""
    from coserve.local.database import find_url
    from coserve.local.snapshot import what_runs

    settings = read_settings()
    owner = running(settings)
    return what_runs(owner, settings.home_path, find_url(settings))


def status(json: AsJson = False) -> None:
    """Show the verdict, its issues, and running components, models, queue and latencies.

    Exits with 3 when nothing is running, with 4 when requests or batches suffer.
    """
    seen = current_state()
    if json:
        print_json(seen)
    else:
        _print(seen)
    if seen["status"] != "ok":
        raise typer.Exit(DEGRADED)


def _print(seen: Mapping[str, Any]) -> None:
    for tone, line in verdict(seen):
        typer.secho(line, fg=COLOURS.get(tone))
    for line in words(seen):
        typer.echo(line)
    rows = [
        (
            part["name"],
            part["state"],
            _age(part["for_s"]),
            str(part["restarts"]),
            str(part["pid"] or "-"),
            part["log"],
        )
        for part in seen["parts"]
    ]
    show_table(("part", "state", "for", "restarts", "process", "log"), rows)


def verdict(seen: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Tone and text of each line of the verdict, then of each issue; all from `/statusz`."""
    said = seen["verdict"]
    if said is None:
        yield "bad", "DEGRADED  the gateway does not answer"
        return
    for name in ("chat", "harvest", "batches", "parts"):
        yield said[name]["tone"], f"{name.upper():8} {said[name]['says']}"
    for issue in said["issues"]:
        cause = f". {issue['cause']}" if issue["cause"] else ""
        yield issue["tone"], f"issue: {issue['what']}{cause}"


def words(seen: Mapping[str, Any]) -> Iterator[str]:
    """The lines above the table of parts."""
    urls = seen["urls"]
    yield f"coserve {seen['version']} is running (process {seen['pid']}), home {seen['home']}"
    yield f"versions: {_versions(seen['versions'])}"
    if urls["api"]:
        yield f"API: {urls['api']}   dashboard: {urls['dashboard']}"
    for model in seen["models"]:
        state = "up" if model["up"] else "down"
        context = f"{model['context_tokens']:,} tokens" if model["context_tokens"] else "any length"
        yield f"model: {model['id']}, {context}, {state}, level {model['coserving_level']}"
        for why, levels in _by_reason(model["coserving_reasons"]).items():
            yield f"  not level {levels}: {why}"
    for name, part in seen["behind"].items():
        if not part["ok"]:
            yield f"{name}: {part['why']}"
    if seen["profile"]:
        yield f"profile: {seen['profile']}"
    yield from figures(seen)


def figures(seen: Mapping[str, Any]) -> Iterator[str]:
    """Queue, latencies, tokens and memory in words; nothing where nothing is known."""
    if seen["queue"]:
        queue = seen["queue"]
        batches, rows = queue["live_batches"], queue["open_rows"]
        yield f"queue: {counted(batches, 'batch', 'es')}, {counted(rows, 'row', 's')} to answer"
    for of, name in (("ttft", "first token"), ("tbt", "gap")):
        got = (seen["online"] or {}).get(of)
        if got and got["num"]:
            yield (
                f"{name}: P50 {_ms(got['p50_s'])}, P90 {_ms(got['p90_s'])}, "
                f"P99 {_ms(got['p99_s'])}, in time {share(got['in_time'])} "
                f"(15 min {share(got['in_time_15m'])})"
            )
    rates = seen["tokens_per_s"] or {}
    if any(rate is not None for rate in rates.values()):
        told = ", ".join(f"{name} {rate or 0:,.0f}" for name, rate in rates.items())
        yield f"tokens/s: {told}"
    memory = seen["memory"] or {}
    if any(one is not None for one in memory.values()):
        yield f"KV memory: device {share(memory['device'])}, host {share(memory['host'])}"


def counted(num: int, noun: str, plural: str) -> str:
    """How many, and of what."""
    return f"{num:,} {noun}{'' if num == 1 else plural}"


def _by_reason(reasons: Mapping[str, str]) -> dict[str, str]:
    """The missing levels by why they are missing, those of one reason together."""
    found: dict[str, str] = {}
    for level, why in sorted(reasons.items()):
        found[why] = f"{found[why]}, {level}" if why in found else level
    return found


def _versions(found: Mapping[str, Any]) -> str:
    # An engine that is not ours is told with its name.
    engines = [f"SGLang {one}" if one[:1].isdigit() else one for one in found["engines"]]
    schema = [] if found["schema"] is None else [f"database schema {found['schema']}"]
    return ", ".join([f"Python {found['python']}", *schema, *engines])


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{1000 * seconds:.0f} ms"


def _age(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
