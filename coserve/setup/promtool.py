"""Prometheus' promtool for the tests of the alerts: the host's, else out of Debian's package.

The package is unpacked, not installed: no server is started, and no root is needed.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from coserve.setup.progress import SetupFailed, run, step


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
