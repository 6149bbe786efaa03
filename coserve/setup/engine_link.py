"""Make our engine packages importable in an engine environment.

No installer is involved: symbolic links to this checkout, a start-up hook on hosts without CUDA,
and the metadata with SGLang's plugin entry points. Works offline, in a fresh clone and in an
image; a second run changes nothing. The checkout itself is never put on the engine's path: its
`kernels/` folder would shadow the Hugging Face package of that name.

    python coserve/setup/engine_link.py PATH_OF_ENGINE_PYTHON CHECKOUT [--cpu|--cuda]
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version as installed_version
from pathlib import Path

NAME = "coserve-engine"
START_UP_HOOK = "coserve_cpu.pth"

LINKS = {
    "engine_adapter": "engine_adapter",
    "api": "api",
    "service": "service",
    "coserve_kernels": "kernels/coserve_kernels",
}
# Only in a checkout: policies to compare with, and a GPU that is emulated.
_RESEARCH_LINKS = {"lab": "lab"}
_CPU_LINKS = {"sgl_kernel": "engine_adapter/cpu_compat/sgl_kernel"}
ENTRY_POINTS = "[sglang.srt.plugins]\ncoserve = engine_adapter.sglang.plugin:register\n"
_CPU_ENTRY_POINT = "coserve_cpu = engine_adapter.cpu_compat.plugin:register\n"
_EMULATED_ENTRY_POINT = "coserve_emulated = lab.emulated.plugin:register\n"


def site_packages(python: Path) -> Path:
    """Where the environment of `python` keeps its packages."""
    code = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    done = subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True)
    return Path(done.stdout.strip())


def is_for_cpu(python: Path) -> bool:
    """Whether an environment was made for a host without CUDA."""
    site = site_packages(python)
    return (site / START_UP_HOOK).exists() or any((site / name).is_symlink() for name in _CPU_LINKS)


def link_packages(python: Path, checkout: Path, *, cpu: bool) -> Path:
    """Link our packages into the environment of `python`.

    Args:
        python: The engine environment's interpreter.
        checkout: The folder of our packages: a checkout, or where the wheel is installed.
        cpu: Whether the host lacks CUDA: adds the kernel stand-in and the start-up hook.

    Returns:
        The folder that was linked into.
    """
    site = site_packages(python)
    research = (checkout / "lab").is_dir()
    wanted = {**LINKS, **(_RESEARCH_LINKS if research else {}), **(_CPU_LINKS if cpu else {})}
    for name, source in wanted.items():
        found = checkout / source
        # A wheel has every package beside the others.
        _point(site / name, (found if found.exists() else checkout / name).resolve())
    if cpu:
        (site / START_UP_HOOK).write_text("import engine_adapter.cpu_compat.startup\n")
    entry_points = ENTRY_POINTS
    if cpu:
        entry_points += _CPU_ENTRY_POINT + (_EMULATED_ENTRY_POINT if research else "")
    write_metadata(site, version_of(checkout), entry_points)
    return site


def version_of(checkout: Path) -> str:
    """The one version of everything here: `pyproject.toml` says it, or the wheel's metadata."""
    project = checkout / "pyproject.toml"
    if not project.is_file():
        return installed_version("coserve")
    version: str = tomllib.loads(project.read_text())["project"]["version"]
    return version


def write_metadata(site: Path, version: str, entry_points: str) -> None:
    """Write the metadata by which SGLang finds our plugins, in place of any older version's."""
    stem = NAME.replace("-", "_")
    metadata = site / f"{stem}-{version}.dist-info"
    for other in site.glob(f"{stem}-*.dist-info"):
        if other != metadata:
            shutil.rmtree(other)
    metadata.mkdir(exist_ok=True)
    _write(metadata / "METADATA", f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\n")
    _write(metadata / "INSTALLER", "coserve\n")
    _write(metadata / "entry_points.txt", entry_points)
    names = [f"{metadata.name}/{file}" for file in ("METADATA", "INSTALLER", "entry_points.txt")]
    _write(metadata / "RECORD", "".join(f"{name},,\n" for name in names))


def _write(file: Path, text: str) -> None:
    """Write what changed, as a new file: a copied environment may share the old one."""
    if file.is_file() and file.read_text() == text:
        return
    file.unlink(missing_ok=True)
    file.write_text(text)


def _point(link: Path, target: Path) -> None:
    if link.is_symlink():
        if link.readlink() == target:
            return
        link.unlink()
    elif link.exists():
        raise SystemExit(f"{link} is in the way: remove it, then run this again.")
    link.symlink_to(target)


if __name__ == "__main__":
    link_packages(Path(sys.argv[1]), Path(sys.argv[2]), cpu="--cpu" in sys.argv[3:])
