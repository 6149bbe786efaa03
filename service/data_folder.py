"""Where coserve keeps its state and its engine when nothing says otherwise.

|  | state (`COSERVE_HOME`) | engine |
| --- | --- | --- |
| a checkout | `.coserve` in the working directory | `.venv-engine` in the checkout |
| an installed package | `state` in the data folder | `.venv-engine` in the data folder |

The data folder is `$XDG_DATA_HOME/coserve`, by default `~/.local/share/coserve`. The set-up imports
this file before anything is installed: the standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PACKAGES: Final = Path(__file__).resolve().parents[1]
"""The folder our packages are in: a checkout, or an environment's site-packages."""


def is_checkout(folder: Path) -> bool:
    return (folder / "pyproject.toml").is_file()


def data_folder(environ: Mapping[str, str]) -> Path:
    """The user's own, by the XDG base directory rules: a relative path counts as none."""
    given = Path(environ.get("XDG_DATA_HOME", ""))
    base = given if given.is_absolute() else Path("~/.local/share").expanduser()
    return base / "coserve"


def installs_to(packages: Path = PACKAGES, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder that the engine's environment and the set-up's tools are in."""
    return packages if is_checkout(packages) else data_folder(environ)


def default_home(packages: Path = PACKAGES, environ: Mapping[str, str] = os.environ) -> Path:
    """The state directory where `COSERVE_HOME` is not set."""
    return Path(".coserve") if is_checkout(packages) else data_folder(environ) / "state"
