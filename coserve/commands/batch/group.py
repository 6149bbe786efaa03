"""The verbs of `coserve batch`, in the order of its `--help`."""

from __future__ import annotations

import typer

from coserve.commands.batch.check import check
from coserve.commands.batch.download import download
from coserve.commands.batch.reading import events, get, list_batches, results
from coserve.commands.batch.run import run
from coserve.commands.batch.steering import cancel, pause, priority, resume, retry
from coserve.commands.batch.submit import submit
from coserve.commands.batch.wait import wait

app = typer.Typer(no_args_is_help=True, help="Submit, check and follow batches.")
app.command("list")(list_batches)
app.command()(get)
app.command()(wait)
app.command()(events)
app.command()(results)
app.command()(run)
app.command()(pause)
app.command()(resume)
app.command()(retry)
# `priority ID -10`: a negative number is no option.
app.command(context_settings={"ignore_unknown_options": True})(priority)
app.command()(submit)
app.command()(check)
app.command()(cancel)
app.command()(download)
