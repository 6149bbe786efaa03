"""The image of the service, built here from `docker/service.Dockerfile`.

Where no registry is reached, Debian's Python takes the place of the base image. Nothing else of
the Dockerfile changes.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from coserve.setup.debian import install

ROOT = Path(__file__).parents[2]
PROGRAMS = ("buildah", "podman", "runc", "mmdebstrap")
BASE, SERVICE = "localhost/coserve-python:bookworm", "coserve/service:0.1.0"
PACKAGES = "python3,python3-venv,python-is-python3,ca-certificates"
CERTIFICATES = Path("/etc/ssl/certs")
PIP_SETTINGS = Path("/etc/pip.conf")


class Store:
    """Images and containers in a folder of their own, apart from those of the host."""

    def __init__(self, folder: Path) -> None:
        self._where = [
            "--root", str(folder / "store"), "--runroot", str(folder / "run"),
            "--storage-driver", "overlay",
        ]  # fmt: skip

    def run(self, program: str, *arguments: str, check: bool = True) -> str:
        """What the program prints.

        Raises:
            RuntimeError: It failed, and `check` is set.
        """
        done = subprocess.run(
            self.argv(program, *arguments), capture_output=True, text=True, check=False
        )
        if check and done.returncode:
            raise RuntimeError(f"{program} {' '.join(arguments)}: {done.stderr[-3000:]}")
        return done.stdout

    def argv(self, program: str, *arguments: str) -> list[str]:
        """The command line."""
        return [program, *self._where, *arguments]

    def has(self, image: str) -> bool:
        """Whether an image is here."""
        return bool(self.run("podman", "images", "-q", image).strip())


def install_programs() -> None:
    """What Debian offers; raises `SetupFailed` where it cannot be installed."""
    for program in PROGRAMS:
        if shutil.which(program) is None:
            install(program, f"No {program} on this host")


def make_base(store: Store) -> None:
    """Debian's Python as an image."""
    if store.has(BASE):
        return
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "base.tar"
        argv = ["mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(target)]
        subprocess.run([*argv, "http://deb.debian.org/debian"], check=True, capture_output=True)
        store.run("podman", "import", str(target), BASE)


def build(store: Store, base: str) -> None:
    """Build the image of the service on this base."""
    mounts = [path for path in (CERTIFICATES, PIP_SETTINGS) if path.exists()]
    store.run(
        "buildah", "bud", "--layers", "--isolation=chroot", "--network=host",
        *_each("--volume", [f"{path}:{path}:ro" for path in mounts]),
        "--build-arg", f"PYTHON={base}",
        "--file", str(ROOT / "docker/service.Dockerfile"), "--tag", SERVICE, str(ROOT),
    )  # fmt: skip


def _each(flag: str, values: Sequence[str]) -> list[str]:
    return [word for value in values for word in (flag, value)]
