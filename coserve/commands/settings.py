"""The settings as a command reads them: it ends where one is wrong, before it does anything."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from coserve.commands.terminal import EXIT_WRONG_SETTING, refuse
from service.data_folder import installs_to

if TYPE_CHECKING:
    from coserve.settings import LocalSettings


def profiles_folder(settings: LocalSettings, environ: Mapping[str, str] = os.environ) -> Path:
    """Where an engine of this machine keeps what it measured."""
    return Path(environ.get("COSERVE_PROFILE_DIR") or settings.home_path / "profiles")


def read_settings(*, all_parts: bool = False) -> LocalSettings:
    """The settings, or the end: one line per misspelt name or wrong value.

    Args:
        all_parts: Check what gateway and workers will read, too.

    Raises:
        typer.Exit: With status 2.
    """
    from pydantic_settings import SettingsError

    from batch.settings import BatchSettings
    from coserve.settings import LocalSettings, known_names, unknown_names, wrong_values
    from coserve.setup.engine_env import why_unknown_sglang
    from gateway.settings import GatewaySettings

    wrong = unknown_names(os.environ, known_names())
    if not wrong:
        try:
            others = (GatewaySettings, BatchSettings) if all_parts else ()
            wrong = wrong_values((LocalSettings, *others))
        except SettingsError as error:
            wrong = [str(error)]
    if not wrong and (why := why_unknown_sglang(installs_to())):
        wrong = [why]
    if wrong:
        refuse(*wrong, status=EXIT_WRONG_SETTING)
    return LocalSettings()
