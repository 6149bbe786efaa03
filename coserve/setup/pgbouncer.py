"""PgBouncer for the tests behind a pooler: the one of the host, else Debian's package."""

from __future__ import annotations

import os
import shutil

from coserve.setup.debian import install

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
