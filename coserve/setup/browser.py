"""Chromium for the browser tests: the one on PATH, else Debian's package (needs root)."""

from __future__ import annotations

import shutil

from coserve.setup.debian import install
from coserve.setup.progress import SetupFailed

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
