"""A state directory as one file, and back: database, files, keys, profiles.

    manifest.json   what it is (`Manifest`)
    database.dump   Postgres' custom format, of one snapshot
    files/KEY       the objects that snapshot names
    home/…          admin key, secret, profiles

The snapshot is taken between two passes over the folder of objects. Each pass hard-links what is
there, so whatever the snapshot names is kept, also when it is deleted meanwhile. Nothing stops.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import psycopg
from sqlalchemy.engine import make_url

from coserve.local import postgres
from service.clock import SystemClock
from store.schema import NEEDED

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
DUMP: Final = "database.dump"
OWN_FILES: Final = ("admin-key", "secret")
_CHUNK_BYTES: Final = 1 << 20

# Long results lie in several objects (batch/files/parts.py), also while they are being written; the
# parts of an upload that has not ended are no file yet.
NAMED_OBJECTS: Final = """
    SELECT CASE number WHEN 1 THEN key ELSE key || '-' || number END AS object, num_bytes
    FROM (
      SELECT f.storage_key, p.number, p.num_bytes
      FROM files f, unnest(coalesce(f.part_bytes, ARRAY[f.size_bytes])) WITH ORDINALITY
        AS p(num_bytes, number)
      WHERE f.collected_at IS NULL
      UNION ALL SELECT file_id, number, size_bytes FROM output_parts
      UNION ALL
      SELECT p.id, 1, p.size_bytes FROM upload_parts p JOIN uploads u ON u.id = p.upload_id
      WHERE u.status = 'pending'
    ) AS named(key, number, num_bytes)
    ORDER BY object
"""


class BackupError(RuntimeError):
    """It cannot be made or used; the message says why."""


@dataclass(frozen=True)
class Manifest:
    """What a backup holds.

    Attributes:
        made_at: Unix seconds.
        num_files: Objects in it; none where they are in a store of their own.
        missing: Objects that the database names and the folder lacks.
    """

    format: int
    coserve: str
    database_schema: str
    made_at: int
    dump_sha256: str
    num_files: int | None
    file_bytes: int | None
    missing: list[str]
    num_batches: int


def back_up(target: Path, home: Path, database_url: str, objects: Path | None) -> Manifest:
    """Write everything to `target`, whole or not at all, readable by its owner alone.

    Args:
        target: The file to make.
        home: The state directory.
        database_url: As SQLAlchemy has it.
        objects: The local folder of objects; none where files are in a store of their own.

    Raises:
        BackupError: There is such a file, or the database cannot be read.
    """
    if target.exists():
        raise BackupError(f"{target} is there already.")
    partial = target.with_name(f".{target.name}.part")
    partial.unlink(missing_ok=True)
    try:
        with _descriptor(partial) as file, _kept(objects) as kept:
            manifest = _write(file, home, database_url, kept)
        partial.replace(target)
    except OSError as error:
        raise BackupError(f"{error.filename or target}: {error.strerror}.") from error
    finally:
        partial.unlink(missing_ok=True)
    return manifest


def _write(file: Any, home: Path, database_url: str, kept: Kept | None) -> Manifest:
    with tempfile.TemporaryDirectory(prefix="coserve-backup-") as place:
        dump = Path(place) / DUMP
        with _snapshot(database_url) as (snapshot, connection):
            _run("pg_dump", database_url, f"--snapshot={snapshot}", "-Fc", f"--file={dump}")
            named = connection.execute(NAMED_OBJECTS).fetchall()
            schema = _one(connection, "SELECT version_num FROM alembic_version")
            num_batches = int(_one(connection, "SELECT count(*) FROM batches"))
        if kept is not None:
            kept.gather()
        found = [] if kept is None else [one for one in named if kept.path(one[0]).exists()]
        manifest = Manifest(
            format=FORMAT,
            coserve=version("coserve"),
            database_schema=schema,
            made_at=int(SystemClock().now().timestamp()),
            dump_sha256=_sha256(dump),
            num_files=None if kept is None else len(found),
            file_bytes=None if kept is None else sum(size for _, size in found),
            missing=[] if kept is None else sorted({key for key, _ in set(named) - set(found)}),
            num_batches=num_batches,
        )
        with tarfile.open(fileobj=file, mode="w|") as tar:
            _add_bytes(tar, MANIFEST, json.dumps(asdict(manifest), indent=1).encode())
            tar.add(dump, DUMP)
            for path in _own(home):
                tar.add(path, f"home/{path.relative_to(home)}", recursive=False)
            for key, _ in found:
                assert kept is not None
                tar.add(kept.path(key), f"files/{key}", recursive=False)
        file.flush()
        os.fsync(file.fileno())
    return manifest


def read_manifest(source: Path) -> Manifest:
    """What a backup says about itself.

    Raises:
        BackupError: It is none, or one of a newer version.
    """
    try:
        with tarfile.open(source, "r:") as tar:
            first = tar.next()
            inside = tar.extractfile(first) if first and first.name == MANIFEST else None
            told = json.loads(inside.read()) if inside else {}
        manifest = Manifest(**told)
    except (OSError, tarfile.TarError, ValueError, TypeError) as error:
        raise BackupError(f"{source} is no backup of coserve: {error}.") from error
    if manifest.format != FORMAT or manifest.database_schema > NEEDED:
        raise BackupError(
            f"{source} was made by coserve {manifest.coserve}, which is newer: restore it there."
        )
    return manifest


def unpack(source: Path, home: Path, objects: Path | None) -> Path:
    """Lay a backup's files where they belong; the dump's path, which the caller removes.

    Raises:
        BackupError: The dump is not what was written.
    """
    manifest = read_manifest(source)
    dump = home / "run" / DUMP
    dump.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(source, "r|") as tar:
        for member in tar:
            content = tar.extractfile(member)
            path = _place(member.name, home, objects, dump)
            if content is not None and path is not None:
                _lay(content, path)
    if _sha256(dump) != manifest.dump_sha256:
        dump.unlink()
        raise BackupError(f"{source} is damaged: its database is not what was written.")
    return dump


def load(dump: Path, database_url: str) -> None:
    """Fill an empty database. Raises BackupError."""
    _run("pg_restore", database_url, "--exit-on-error", "--no-owner", "--single-transaction", dump)


def is_empty(database_url: str) -> bool:
    """Whether a database has no tables of coserve yet."""
    with psycopg.connect(**_parameters(database_url)) as connection:
        return _one(connection, "SELECT to_regclass('public.alembic_version')") == "None"


class Kept:
    """Hard links to the objects of a folder, as they come."""

    def __init__(self, objects: Path, place: Path) -> None:
        self._objects = objects
        self._place = place

    def gather(self) -> None:
        """Link what is there now and was not before."""
        for path in self._objects.glob("*/*"):
            with suppress(FileExistsError, FileNotFoundError):  # known, or deleted just now
                os.link(path, self._place / path.name)

    def path(self, key: str) -> Path:
        """Where an object is, if it was there."""
        return self._place / key


@contextmanager
def _kept(objects: Path | None) -> Iterator[Kept | None]:
    if objects is None:
        yield None
        return
    objects.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=".backup-", dir=objects.parent))
    try:
        kept = Kept(objects, place)
        kept.gather()
        yield kept
    finally:
        shutil.rmtree(place)


@contextmanager
def _descriptor(path: Path) -> Iterator[Any]:
    path.parent.mkdir(parents=True, exist_ok=True)
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "wb") as file:
        yield file


@contextmanager
def _snapshot(url: str) -> Iterator[tuple[str, psycopg.Connection[tuple[Any, ...]]]]:
    """A snapshot's name, and a connection that reads it."""
    try:
        with psycopg.connect(**_parameters(url)) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield _one(connection, "SELECT pg_export_snapshot()"), connection
    except psycopg.Error as error:
        raise BackupError(f"The database cannot be read: {str(error).splitlines()[0]}") from error


def _one(connection: psycopg.Connection[tuple[Any, ...]], query: str) -> str:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return str(row[0])


def _parameters(url: str) -> dict[str, Any]:
    parts = make_url(url)
    given = {
        "host": parts.host,
        "port": parts.port,
        "user": parts.username,
        "password": parts.password,
        "dbname": parts.database,
        **parts.query,
    }
    return {name: value for name, value in given.items() if value is not None}


_LIBPQ: Final = {
    "host": "PGHOST",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
}


def _run(program: str, url: str, *arguments: str | Path) -> None:
    """One of Postgres' programs; the password goes through the environment, where none reads it."""
    parameters = _parameters(url)
    named = {_LIBPQ[name]: str(value) for name, value in parameters.items() if name in _LIBPQ}
    database = f"--dbname={parameters['dbname']}"
    done = subprocess.run(
        [postgres.program(program), database, *arguments],
        env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", **named},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["it did not say why"])[0]
        raise BackupError(f"{program} failed: {said}")


def _own(home: Path) -> Sequence[Path]:
    """What a state directory holds besides database and files, and cannot make again alike."""
    named = [home / name for name in OWN_FILES]
    return [path for path in (*named, *sorted((home / "profiles").glob("*.json"))) if path.exists()]


def _place(name: str, home: Path, objects: Path | None, dump: Path) -> Path | None:
    """Where a member of the archive goes; nothing outside is ever written."""
    folder, _, rest = name.partition("/")
    if name == DUMP:
        return dump
    if folder == "files" and objects is not None and rest and "/" not in rest:
        return objects / rest[-2:] / rest
    if folder == "home" and (rest in OWN_FILES or Path(rest).parent == Path("profiles")):
        return home / rest
    return None


def _lay(content: Any, path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(number, "wb") as file:
        shutil.copyfileobj(content, file, _CHUNK_BYTES)
        file.flush()
        os.fsync(file.fileno())


def _add_bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    member.mode = 0o600
    tar.addfile(member, io.BytesIO(content))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
