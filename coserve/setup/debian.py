"""Programs that tests need and pip does not have: from Debian's packages, as root."""

from __future__ import annotations

import os
import shutil

from coserve.setup.progress import SetupFailed, run, step


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
