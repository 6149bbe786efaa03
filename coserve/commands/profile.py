"""`coserve profile`: measure how long steps take on this machine, and keep the result.

An engine does the same by itself, in the background, when it finds no profile of its model and
machine. This command does it at once and alone: nothing else uses the engine meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    track,
)

from coserve.commands.engine_install import install_engine
from coserve.commands.settings import profiles_folder, read_settings
from coserve.commands.terminal import EXIT_WRONG_SETTING, refuse

if TYPE_CHECKING:
    from coserve.local.part import PartPlan
    from coserve.local.plans import EngineInstall
    from coserve.settings import LocalSettings


# --- `coserve profile import`: GPU step tables out of measured kernels, without a GPU.


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
        refuse("Give both --gpu and --model, or neither for the tables that ship.", status=2)
    wanted = [Wanted(gpu, model, tp)] if gpu else list(SHIPPED)
    out.mkdir(parents=True, exist_ok=True)
    for one in track(wanted, description="reading kernels", disable=len(wanted) == 1):
        try:
            text = to_json(make_table(one))
        except (ImportRefusedError, GpuTableError) as error:
            refuse(error)
        (out / f"{one.name}.json").write_text(text)
    typer.echo(f"Tables made: {len(wanted)}, in {out}")


POLL_S = 0.5
SILENT_LIMIT_S = 120.0
"""An engine that answers nothing for so long is given up: one long step may hold it for a while."""

Shown = Callable[[dict[str, Any]], None]


class NotMeasuredError(RuntimeError):
    """The engine ended, or fell silent, before its profile was there."""


app = typer.Typer(invoke_without_command=True)
app.command("import")(import_tables)


@app.callback()
def profile(context: typer.Context) -> None:
    """Measure this model on this machine; print the targets it can keep."""
    if context.invoked_subcommand is not None:
        return
    from coserve.local.lock import find_owner
    from coserve.local.part import RefusedError, StartFailedError

    settings = read_settings()
    owner = find_owner(settings.home_path)
    if owner is not None:
        refuse(
            f"coserve is running (process {owner.pid}) and measures by itself; "
            "stop it first to measure alone."
        )
    engine = install_engine(settings)
    if engine is None:
        refuse(
            "ENGINE_URLS names an engine elsewhere: run this where it runs.",
            status=EXIT_WRONG_SETTING,
        )
    try:
        state, kept = asyncio.run(measure(settings, engine))
    except (StartFailedError, NotMeasuredError) as error:
        refuse(error, status=EXIT_WRONG_SETTING if isinstance(error, RefusedError) else 1)
    for line in summary(state, kept):
        typer.echo(line)


async def measure(
    settings: LocalSettings, engine: EngineInstall
) -> tuple[dict[str, Any], list[Path]]:
    """Start an engine, wait for its profile, stop it.

    The engine finds an empty folder, so that it measures whatever is stored; what it leaves there
    takes the place of the stored profile of the same model and machine.

    Returns:
        What the engine said of itself at the end, and the profiles kept.
    """
    from coserve.local.part import Part
    from coserve.local.plans import engine_plan
    from coserve.local.ports import free_port

    home = settings.home_path
    for folder in ("log", "run"):
        (home / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    port = free_port()
    plan = engine_plan(settings, engine, port)
    with tempfile.TemporaryDirectory(dir=home / "run", prefix="profile-") as fresh:
        part = Part(_measuring(plan, Path(fresh)), say=typer.echo, changed=lambda: None)
        console = Console()
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
        ) as bar:
            task = bar.add_task(f"starting {engine.model_dir.name}", total=None)

            def show(progress: dict[str, Any]) -> None:
                bar.update(
                    task,
                    description="measuring",
                    total=progress["cells"],
                    completed=progress["cells_done"],
                )

            try:
                await part.start()
                state = await until_measured(part, f"http://127.0.0.1:{port}/server_info", show)
            finally:
                await part.stop()
        return state, _keep(Path(fresh), profiles_folder(settings))


def _measuring(plan: PartPlan, folder: Path) -> PartPlan:
    env = {**plan.command.env, "COSERVE_PROFILE_DIR": str(folder)}
    if env.get("COSERVE_POLICY") == "off":
        del env["COSERVE_POLICY"]  # only a co-serving engine measures
    return replace(plan, command=replace(plan.command, env=env))


async def until_measured(part: Any, url: str, show: Shown) -> dict[str, Any]:
    """Poll an engine until its profile is there.

    Raises:
        NotMeasuredError: It ended, or did not answer for a long time.
    """
    from coserve.local.probes import http_get
    from engine_adapter.client.engine_facts import read_facts

    heard_at = time.monotonic()
    while True:
        reply = await asyncio.to_thread(http_get, url)
        if reply is not None and reply.status == 200:
            heard_at = time.monotonic()
            state = dict(read_facts(json.loads(reply.body)).runtime)
            show(state["profile"])
            if state["profile"]["state"] != "measuring":
                return state
        log = part.plan.command.log
        if part.pid is None:
            raise NotMeasuredError(f"The engine ended while it was measured. Its log: {log}")
        if time.monotonic() - heard_at > SILENT_LIMIT_S:
            raise NotMeasuredError(f"The engine does not answer any more. Its log: {log}")
        await asyncio.sleep(POLL_S)


def _keep(fresh: Path, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    kept = []
    for path in sorted(fresh.glob("*.json")):
        part = folder / f".{path.name}.part"
        shutil.copyfile(path, part)
        kept.append(part.replace(folder / path.name))
    return kept


def summary(state: dict[str, Any], kept: list[Path]) -> list[str]:
    """What is printed at the end: where the profile lies, how good it is, which targets follow."""
    measured, slo = state["profile"], state["slo"]
    errors = ", ".join(
        f"{kind} {error:.1%}" for kind, error in measured["held_out_mean_error"].items()
    )
    return [
        f"Measured {measured['cells']} steps in {measured['busy_s']:.0f} s.",
        f"Mean error on steps the fit had not seen: {errors}",
        f"Targets: TTFT {slo['ttft_s'] * 1e3:.0f} ms, TBT {slo['tbt_s'] * 1e3:.0f} ms "
        "(COSERVE_TTFT_MS and COSERVE_TBT_MS set others)",
        *(f"Stored: {path}" for path in kept),
    ]
