"""The release of SGLang that is followed: where everything of it lies, and what a stage came to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine_adapter.sglang.versions.promises import promises_for, signed_versions
from release.build import ROOT

FOLDER: Final = ROOT / ".tools" / "follow"
REQUIREMENTS: Final = ROOT / "requirements"
PROMISES: Final = "engine_adapter.sglang.versions.promises"
"""The module that the release's own interpreter runs."""
QUIET: Final[Mapping[str, str]] = {**os.environ, "PYTHONWARNINGS": "ignore"}


@dataclass(frozen=True)
class Outcome:
    """What a stage came to.

    Attributes:
        stage: Its name.
        words: A few, for people.
        passed: Whether it leaves the way to a signature open.
    """

    stage: str
    words: str
    passed: bool = True


@dataclass(frozen=True)
class Candidate:
    """The release that is followed.

    Attributes:
        version: Its number.
        near: The signed release that it is held to; none if no release of its family is signed.
    """

    version: str
    near: str | None

    @classmethod
    def of(cls, wheel: Path) -> Candidate:
        """The release of a wheel, by the wheel's name."""
        version = wheel.name.split("-")[1]
        known = promises_for(version)
        return cls(version, known.sglang if known else None)

    @property
    def folder(self) -> Path:
        """Where everything lies that is made of it."""
        return FOLDER / self.version

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        return ROOT / f".venv-engine-{self.version}" / "bin" / "python"

    @property
    def near_python(self) -> Path | None:
        """The interpreter of the signed release's environment; it may not be there."""
        if self.near is None:
            return None
        own = ROOT / f".venv-engine-{self.near}"
        return (own if own.exists() else ROOT / ".venv-engine") / "bin" / "python"

    @property
    def own_list(self) -> Path:
        """What its environment is made from."""
        return self.folder / "requirements" / "engine-cpu.in"

    @property
    def model_version(self) -> str:
        """The signed release whose lists its own begin as."""
        return self.near or signed_versions()[-1]

    def model_list(self, device: str) -> Path:
        """The list for a device, `cpu` or `cuda`, of `model_version`; the default's has no number.

        The default is the release whose list for a CPU has none.
        """
        numbered = (REQUIREMENTS / f"engine-cpu-{self.model_version}.in").exists()
        number = f"-{self.model_version}" if numbered else ""
        return REQUIREMENTS / f"engine-{device}{number}.in"


def say(text: str) -> None:
    """Print at once: each stage takes minutes."""
    print(text, flush=True)  # noqa: T201 - the command's answer
