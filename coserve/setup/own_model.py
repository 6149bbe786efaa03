"""A model of the operator's own: found by path or by name, and looked at before anything starts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from coserve.setup.progress import SetupFailed

_WEIGHTS: Final = ("*.safetensors", "*.bin")
_ENTRY: Final = re.compile(r"^EntryClass\s*=\s*(\[[^\]]*\]|\w+)", re.MULTILINE)
_WORD: Final = re.compile(r"\w+")


def find_model(named: str, home: Path) -> Path:
    """The folder of a model given by its path, or by its name in the state directory's `models`.

    Raises:
        SetupFailed: There is no folder of a whole model, with what is missing.
    """
    given = Path(named).expanduser().absolute()
    kept = home / "models" / named
    folder = kept if not given.is_dir() and kept.is_dir() else given
    if not folder.is_dir():
        raise SetupFailed(f"COSERVE_MODEL: neither {given} nor {kept} is a folder.")
    if not (folder / "config.json").is_file():
        raise SetupFailed(f"COSERVE_MODEL: {folder} is no Hugging Face model folder (config.json).")
    if not any(any(folder.glob(pattern)) for pattern in _WEIGHTS):
        raise SetupFailed(f"COSERVE_MODEL: {folder} holds no weights (*.safetensors).")
    return folder


def check_architecture(folder: Path, engine_python: Path) -> None:
    """Refuse a model that the engine has no code for.

    Args:
        folder: The model's.
        engine_python: The interpreter of the engine's environment.

    Raises:
        SetupFailed: Its architecture is not served, or it names none.
    """
    named = architecture(folder)
    served = served_architectures(engine_python.parents[1].glob("lib/python3*/site-packages"))
    if served and named not in served:
        what = named or "none"
        raise SetupFailed(
            f"COSERVE_MODEL: the architecture of {folder.name} ({what} in its config.json) is not "
            f"one of the {len(served)} that this engine serves."
        )


def architecture(folder: Path) -> str:
    """The first architecture that a model's configuration names; empty if none."""
    try:
        config: Any = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    named = config.get("architectures") if isinstance(config, dict) else None
    return str(named[0]) if isinstance(named, list) and named else ""


def served_architectures(packages: Iterable[Path]) -> frozenset[str]:
    """The architectures SGLang has code for, read and not imported."""
    found: set[str] = set()
    for package in packages:
        for file in package.glob("sglang/srt/models/**/*.py"):
            for entry in _ENTRY.findall(file.read_text(encoding="utf-8")):
                found.update(_WORD.findall(entry))
    return frozenset(found)
