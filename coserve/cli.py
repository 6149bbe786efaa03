"""`coserve`: the command line. Each command imports what it needs when it runs."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from coserve.commands import (
    audit,
    backup,
    batch,
    chat,
    docs,
    doctor,
    engine,
    key,
    logs,
    org,
    profile,
    project,
    research,
    running,
    serve,
    status,
    top,
    up,
    upgrade,
    usage,
    user,
)

app = typer.Typer(
    name="coserve",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"coserve {version('coserve')}")
        raise typer.Exit


@app.callback()
def coserve(
    told: Annotated[
        bool,
        typer.Option(
            "--version", callback=_tell_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Chat and batch on one engine, behind an OpenAI-compatible door."""
    del told


app.command("up")(up.up)
app.command("status")(status.status)
app.command("top")(top.top)
app.command("logs")(logs.logs)
app.command("stop")(running.stop)
app.command("restart")(running.restart)
app.command("chat")(chat.chat)
app.command("docs")(docs.docs)
app.command("doctor")(doctor.doctor)
app.command("backup")(backup.backup)
app.command("restore")(backup.restore)
app.command("upgrade")(upgrade.upgrade)
app.add_typer(profile.app, name="profile")
app.add_typer(org.app, name="org", help="Organisations.")
app.add_typer(project.app, name="project", help="Projects and their limits.")
app.add_typer(key.app, name="key", help="API keys.")
app.add_typer(user.app, name="user", help="Operators of the dashboard, and their roles.")
app.command("audit")(audit.audit)
app.command("usage")(usage.usage)
app.add_typer(engine.app, name="engine", help="The engines in use.")
app.add_typer(batch.app, name="batch", help="Batches from the command line.")
app.add_typer(research.bench, name="bench", help="Benchmarks.")
app.command("plan", context_settings=research.CONTEXT)(research.plan)
app.command("simulate", context_settings=research.CONTEXT)(research.simulate)
app.command("serve")(serve.serve)


def main() -> None:
    app()
