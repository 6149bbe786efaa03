"""Where a server's files lie, so that the user it runs as can reach them.

Postgres refuses to run as root. Under root it runs as `nobody`, which may be unable to pass through
the directories above our state or our virtual environment (a home directory is 0700). What it needs
then goes to a directory of root's under /var/tmp.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import stat
from pathlib import Path

from coserve.local.command import Account

_SHARED = Path("/var/tmp")  # survives a reboot; the name below it is checked to be ours


class PlacementError(RuntimeError):
    """A server's files cannot be put where its user can reach them."""


def server_account() -> Account | None:
    """The user a server that refuses root runs as; None when we are not root."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise PlacementError("Postgres cannot run as root and there is no user `nobody`") from None
    return Account(entry.pw_uid, entry.pw_gid)


def can_pass(directory: Path) -> bool:
    """Whether any user may pass through `directory` and everything above it."""
    return all(part.stat().st_mode & stat.S_IXOTH for part in [directory, *directory.parents])


def own_directory(path: Path, mode: int) -> Path:
    """Make `path`, or check that the one there is really ours (others can write in /var/tmp)."""
    path.mkdir(mode=mode, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PlacementError(f"{path} exists and does not belong to us: remove it")
    path.chmod(mode)
    return path


def _short_name(path: Path) -> str:
    return hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]


def reachable_directory(home: Path, account: Account | None) -> Path:
    """A directory of ours, below `home` if `account` can get there, else in /var/tmp."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if account is None:
        return own_directory(home / "postgres", 0o700)
    if can_pass(home.resolve().parent):
        # Closed to everybody but us; the account may pass through, not list it.
        os.chown(home, -1, account.gid)
        home.chmod(0o710)
        return own_directory(home / "postgres", 0o711)
    return own_directory(_SHARED / f"coserve-{_short_name(home)}", 0o711)


def reachable_copy(folders: list[Path], version: str, account: Account | None) -> Path:
    """The parent of `folders`, or of a copy of them that `account` can execute.

    All `folders` share one parent. A finished copy is kept for later starts.
    """
    parent = folders[0].parent
    if account is None or can_pass(folders[0].resolve()):
        return parent
    target = _SHARED / f"coserve-postgres-{version}-{_short_name(parent)}"
    if not target.exists():
        partial = own_directory(target.with_name(f"{target.name}.{os.getpid()}"), 0o755)
        for folder in folders:
            shutil.copytree(folder, partial / folder.name, symlinks=True)
        try:
            partial.rename(target)
        except OSError:  # another start was faster
            shutil.rmtree(partial)
    return own_directory(target, 0o755)
