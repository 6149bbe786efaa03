"""nginx and Caddy for the tests behind them: those of the host, else Debian's packages."""

from __future__ import annotations

import os
import shutil
from typing import Final

from coserve.setup.debian import install

PROXIES: Final = {"nginx": "nginx-light", "caddy": "caddy"}
"""Program -> package."""
PLACES: Final = "/usr/sbin:/usr/local/sbin"


def find_proxy(name: str) -> str | None:
    """The path of the program."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{PLACES}")


def set_up_proxies() -> None:
    """Install what is missing; both are left alone afterwards. Raises SetupFailed."""
    for name, package in PROXIES.items():
        if find_proxy(name) is None:
            install(package, f"No {name} on this host")
        print(f"  {name}: ready ({find_proxy(name)})", flush=True)
