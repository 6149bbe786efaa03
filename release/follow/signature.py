"""What signs a release of SGLang: its lists and promises, as files for a person to commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

from engine_adapter.sglang.versions.promises import SIGNED_DIR
from release.build import ROOT
from release.follow.candidate import PROMISES, REQUIREMENTS, Candidate


def sign(candidate: Candidate) -> None:
    """Write its lists and its promises."""
    version = candidate.version
    for ending in ("in", "txt"):
        text = candidate.own_list.with_suffix(f".{ending}").read_text()
        target = REQUIREMENTS / f"engine-cpu-{version}.{ending}"
        target.write_text(text.replace("engine-cpu.in", f"engine-cpu-{version}.in"))
    cuda = candidate.model_list("cuda").read_text()
    (REQUIREMENTS / f"engine-cuda-{version}.in").write_text(
        cuda.replace(f"sglang=={candidate.model_version}", f"sglang=={version}")
    )
    subprocess.run([candidate.python, "-m", PROMISES, "--write"], cwd=ROOT, check=True)


def take_back(version: str) -> None:
    """Remove what `sign` wrote."""
    for written in _files(version):
        written.unlink(missing_ok=True)


def _files(version: str) -> list[Path]:
    lists = [f"engine-cpu-{version}.in", f"engine-cpu-{version}.txt", f"engine-cuda-{version}.in"]
    return [*(REQUIREMENTS / one for one in lists), SIGNED_DIR / f"{version}.json"]
