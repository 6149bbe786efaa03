"""`coserve`: the command line. Each command imports what it needs when it runs."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from coserve.commands import (
    audit,
    backup,
    chat,
    docs,
    doctor,
    engine,
    file,
    key,
    logs,
    org,
    profile,
    project,
    prove,
    research,
    running,
    serve,
    status,
    top,
    up,
    upgrade,
    usage,
    user,
    webhook,
)
from coserve.commands.batch import group as batch

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
    version_wanted: Annotated[
        bool,
        typer.Option(
            "--version", callback=_tell_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Chat and batch on one engine, behind an OpenAI-compatible door."""
    del version_wanted  # its callback has ended the command


# The groups of `--help`, in its order.
HERE = "This machine"
USE = "Chat and batches"
TENANTS = "Tenants and engines"
RESEARCH = "Measure and plan"

app.command("up", rich_help_panel=HERE)(up.up)
app.command("status", rich_help_panel=HERE)(status.status)
app.command("top", rich_help_panel=HERE)(top.top)
app.command("logs", rich_help_panel=HERE)(logs.logs)
app.command("stop", rich_help_panel=HERE)(running.stop)
app.command("restart", rich_help_panel=HERE)(running.restart)
app.command("doctor", rich_help_panel=HERE)(doctor.doctor)
app.command("docs", rich_help_panel=HERE)(docs.docs)
app.command("backup", rich_help_panel=HERE)(backup.backup)
app.command("restore", rich_help_panel=HERE)(backup.restore)
app.command("upgrade", rich_help_panel=HERE)(upgrade.upgrade)
app.command("serve", rich_help_panel=HERE)(serve.serve)
app.command("chat", rich_help_panel=USE)(chat.chat)
app.add_typer(batch.app, name="batch", help="Batches from the command line.", rich_help_panel=USE)
app.add_typer(file.app, name="file", help="The files of a project.", rich_help_panel=USE)
app.add_typer(
    webhook.app, name="webhook", help="Webhook endpoints of a project.", rich_help_panel=USE
)
app.add_typer(org.app, name="org", help="Organisations.", rich_help_panel=TENANTS)
app.add_typer(
    project.app, name="project", help="Projects and their limits.", rich_help_panel=TENANTS
)
app.add_typer(key.app, name="key", help="API keys.", rich_help_panel=TENANTS)
app.add_typer(
    user.app,
    name="user",
    help="Operators of the dashboard, and their roles.",
    rich_help_panel=TENANTS,
)
app.add_typer(engine.app, name="engine", help="The engines in use.", rich_help_panel=TENANTS)
app.command("audit", rich_help_panel=TENANTS)(audit.audit)
app.command("usage", rich_help_panel=TENANTS)(usage.usage)
app.add_typer(profile.app, name="profile", rich_help_panel=RESEARCH)
app.command("prove", rich_help_panel=RESEARCH)(prove.prove)
app.command("plan", context_settings=research.CONTEXT, rich_help_panel=RESEARCH)(research.plan)
app.command("simulate", context_settings=research.CONTEXT, rich_help_panel=RESEARCH)(
    research.simulate
)
app.add_typer(research.bench, name="bench", help="Benchmarks.", rich_help_panel=RESEARCH)


def main() -> None:
    app()
