"""`coserve engine install`, which is also the first thing that `coserve up` does."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from coserve.commands.settings import read_settings
from coserve.commands.terminal import EXIT_WRONG_SETTING, refuse
from service.data_folder import installs_to

if TYPE_CHECKING:
    from coserve.local.plans import EngineInstall
    from coserve.settings import LocalSettings


def install(
    sglang: Annotated[str, typer.Option(help="Release; COSERVE_SGLANG if empty.")] = "",
    device: Annotated[
        Literal["", "cpu", "cuda"], typer.Option(help="COSERVE_DEVICE if empty.")
    ] = "",
) -> None:
    """Install the engine and the model now, and not at the first `coserve up`."""
    from coserve.setup.engine_env import SGLANG_SETTING, known_sglangs

    known = known_sglangs(installs_to())
    if sglang and sglang not in known:
        refuse(f"SGLang {sglang} is not supported: give {' or '.join(known)}.", status=2)
    if sglang:
        os.environ[SGLANG_SETTING] = sglang
    if device:
        os.environ["COSERVE_DEVICE"] = device
    settings = read_settings()
    if settings.engine_urls:
        refuse("ENGINE_URLS is set, so no engine is installed here.", status=2)
    settings.home_path.mkdir(mode=0o700, parents=True, exist_ok=True)
    install_engine(settings)


def install_engine(settings: LocalSettings) -> EngineInstall | None:
    """The engine's environment and the model, made if missing; None when ENGINE_URLS is given.

    Raises:
        typer.Exit: With status 2, where one of them cannot be had or does not fit the other.
    """
    if settings.engine_urls:
        return None
    from coserve.local.plans import EngineInstall
    from coserve.setup.engine_env import has_cuda, set_up_engine
    from coserve.setup.model import check_architecture, ensure_default_model, find_model
    from coserve.setup.progress import SetupFailed
    from coserve.setup.verbs import only_one

    checkout, home = installs_to(), settings.home_path
    try:
        own = find_model(settings.model, home) if settings.model else None
        if settings.device == "cuda" and not has_cuda():
            raise SetupFailed(
                "COSERVE_DEVICE is cuda, but there is no NVIDIA driver here (nvidia-smi)."
            )
        with only_one(checkout):
            python = set_up_engine(checkout)
            model_dir = own or ensure_default_model(checkout, home, python)
        check_architecture(model_dir, python)
    except SetupFailed as error:
        refuse(error, status=EXIT_WRONG_SETTING)
    return EngineInstall(python=python, model_dir=model_dir, cuda=has_cuda())
