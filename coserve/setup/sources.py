"""Where the set-up reads our packages and their lists: in a checkout, or where the wheel put them.

The set-up's functions take the folder that they install to. That is the checkout itself, or the
data folder (`service.data_folder`), which holds none of our files.
"""

from __future__ import annotations

from pathlib import Path

_OURS = Path(__file__).resolve().parents[2]


def packages_of(base: Path) -> Path:
    """The folder of our packages for what is installed to `base`."""
    return base if (base / "engine_adapter").is_dir() else _OURS


def listed(base: Path, name: str) -> Path:
    """One of the lists of what is installed."""
    own = base / "requirements" / name
    return own if own.is_file() else _OURS / "requirements" / name
