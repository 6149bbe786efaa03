"""`coserve profile import`: GPU step tables out of measured kernels, without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track


def import_tables(
    out: Annotated[Path, typer.Option(help="Folder for the tables.")] = Path("gpu-tables"),
    gpu: Annotated[str, typer.Option(help="GPU system, for example b200_sxm.")] = "",
    model: Annotated[str, typer.Option(help="Model, for example Qwen/Qwen3-32B.")] = "",
    tp: Annotated[int, typer.Option(min=1, help="GPUs that share the model.")] = 1,
) -> None:
    """Make GPU step tables from aiconfigurator-core: those that ship, or of --gpu and --model."""
    from engine_adapter.gpu_tables.gpu_import import SHIPPED, ImportRefusedError, Wanted, make_table
    from engine_adapter.gpu_tables.gpu_table import GpuTableError, to_json

    if bool(gpu) != bool(model):
        typer.echo("Give both --gpu and --model, or neither for the tables that ship.", err=True)
        raise typer.Exit(2)
    wanted = [Wanted(gpu, model, tp)] if gpu else list(SHIPPED)
    out.mkdir(parents=True, exist_ok=True)
    for one in track(wanted, description="reading kernels", disable=len(wanted) == 1):
        try:
            text = to_json(make_table(one))
        except (ImportRefusedError, GpuTableError) as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(1) from None
        (out / f"{one.name}.json").write_text(text)
    typer.echo(f"Tables made: {len(wanted)}, in {out}")
