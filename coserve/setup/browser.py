"""Chromium for the browser tests: the one on PATH, else Debian's package (needs root)."""

from __future__ import annotations

import os
import shutil

from coserve.setup.progress import SetupFailed, run, step

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
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise SetupFailed(
            "No Chromium on PATH, and it can be installed from here only as root on Debian or "
            "Ubuntu: install chromium, or run `make setup-browser` as root."
        )
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with step("package lists"):
        run([apt, "update", "-qq"], "The package lists could not be read", env=env)
    with step("chromium"):
        argv = [apt, "install", "-y", "-qq", "--no-install-recommends", "chromium"]
        run(argv, "Chromium could not be installed", env=env)
    found = find_browser()
    if found is None:
        raise SetupFailed("Chromium was installed but is not on PATH.")
    return found
