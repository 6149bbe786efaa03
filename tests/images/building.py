"""The two images, built here from `docker/*.Dockerfile`.

Where no registry is reached, Debian's Python takes the place of both base images. Nothing else of
the Dockerfiles changes.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from coserve.setup.engine_env import engine_python
from coserve.setup.tools import install

ROOT = Path(__file__).parents[2]
PROGRAMS = ("buildah", "podman", "runc", "mmdebstrap")
BASE = "localhost/coserve-python:bookworm"
PACKAGES = "python3,python3-venv,python-is-python3,ca-certificates"
CERTIFICATES = Path("/etc/ssl/certs")
PIP_SETTINGS, MORE_PIP_SETTINGS = Path("/etc/pip.conf"), Path("/etc/xdg/pip/pip.conf")


@dataclass(frozen=True, slots=True)
class Image:
    """One that is built: its name, its Dockerfile, its build arguments."""

    name: str
    dockerfile: str
    arguments: tuple[str, ...]


SERVICE = Image("coserve/service:0.2.0", "docker/service.Dockerfile", (f"PYTHON={BASE}",))
ENGINE_CPU = Image(
    "coserve/engine:0.2.0", "docker/engine.Dockerfile", (f"CUDA={BASE}", "DEVICE=cpu")
)
ENGINE_CUDA = Image("coserve/engine:0.2.0-cuda", "docker/engine.Dockerfile", (f"CUDA={BASE}",))


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

    def size(self, image: str) -> str:
        """How large an image is, base included."""
        return self.run("podman", "images", "--format={{.Size}}", image).split("\n")[0]


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


def build(store: Store, image: Image, folder: Path) -> None:
    """Build an image; `folder` gets what its pip is told of the wheels on this host."""
    wheels = find_links()
    settings = folder / "pip.conf"
    settings.write_text("[global]\n" + (f"find-links = {' '.join(wheels)}\n" if wheels else ""))
    mounts = [str(path) for path in (CERTIFICATES, PIP_SETTINGS) if path.exists()] + wheels
    store.run(
        "buildah", "bud", "--layers", "--isolation=chroot", "--network=host",
        *_each("--volume", [f"{path}:{path}:ro" for path in mounts]),
        "--volume", f"{settings}:{MORE_PIP_SETTINGS}:ro",
        *_each("--build-arg", image.arguments),
        "--file", str(ROOT / image.dockerfile), "--tag", image.name, str(ROOT),
    )  # fmt: skip


def find_links() -> list[str]:
    """Folders of wheels that this host's pip is told of: a CPU build of torch may lie there."""
    python = engine_python(ROOT)
    argv = [str(python if python.exists() else sys.executable), "-m", "pip", "config", "list"]
    told = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    settings = (line.partition("=") for line in told.splitlines())
    values = [ast.literal_eval(value) for name, _, value in settings if name.endswith("find-links")]
    return sorted({word for value in values for word in value.split() if Path(word).is_dir()})


def _each(flag: str, values: Sequence[str]) -> list[str]:
    return [word for value in values for word in (flag, value)]
