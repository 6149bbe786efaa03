"""A state directory as one file (`coserve.backup.archive`), while everything runs.

The snapshot is taken between two passes over the folder of objects. Each pass hard-links what is
there, so whatever the snapshot names is kept, also when it is deleted meanwhile. Nothing stops.

What a backup makes beside its target is noted in the state directory before it is made. A backup
that was killed leaves it; the next start, of whatever takes the state directory, removes it.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, Final

import psycopg

from batch.files.local import sync_folder
from coserve.backup import dump
from coserve.backup.archive import DUMP, FORMAT, BackupError, Manifest, Writer
from service.clock import SystemClock
from store.models.batch import LIVE

OWN_FILES: Final = ("admin-key", "secret")
_CHUNK_BYTES: Final = 1 << 20
_LINKS: Final = ".backup-"

# Long results lie in several objects (batch/files/parts.py), also while they are being written; the
# parts of an upload that has not ended are no file yet. The bytes of a deleted file go at once, its
# row stays until the collection: what nobody can read any more is neither kept nor missed.
NAMED_OBJECTS: Final = f"""
    SELECT DISTINCT CASE number WHEN 1 THEN key ELSE key || '-' || number END AS object
    FROM (
      SELECT f.storage_key, p.number
      FROM files f, generate_series(1, coalesce(cardinality(f.part_bytes), 1)) AS p(number)
      WHERE f.collected_at IS NULL
        AND (coalesce(least(f.deleted_at, f.expires_at) > now(), true)
             OR EXISTS (SELECT FROM batches b WHERE b.input_file_id = f.id AND b.{LIVE}))
      UNION ALL SELECT file_id, number FROM output_parts
      UNION ALL SELECT p.id, 1 FROM upload_parts p JOIN uploads u ON u.id = p.upload_id
      WHERE u.status = 'pending'
    ) AS named(key, number)
    ORDER BY object
"""


def back_up(target: Path, home: Path, database_url: str, objects: Path | None) -> Manifest:
    """Write everything to `target`, whole or not at all, readable by its owner alone.

    Args:
        target: The file to make.
        home: The state directory.
        database_url: As SQLAlchemy has it.
        objects: The local folder of objects; none where files are in a store of their own.

    Raises:
        BackupError: There is such a file, another backup is being made, or the database cannot be
            read.
    """
    if target.exists():
        raise BackupError(f"{target} is there already.")
    partial = target.absolute().with_name(f".{target.name}.part")
    links = None if objects is None else objects.parent / f"{_LINKS}{secrets.token_hex(8)}"
    try:
        with (
            _noted(home, [partial, *([] if links is None else [links])]),
            _descriptor(partial) as file,
            _kept(objects, links) as kept,
        ):
            manifest = _write(file, home, database_url, kept)
            partial.replace(target)
            sync_folder(target.absolute().parent)
    except OSError as error:
        raise BackupError(f"{error.filename or target}: {error.strerror}.") from error
    return manifest


def sweep(home: Path) -> bool:
    """Remove what a killed backup has left; not beside one that runs. Whether there was any."""
    if not home.exists():
        return False
    try:
        with _note(home) as note:
            return _remove(home, note)
    except BackupError:  # one is being made
        return False


def _write(file: IO[bytes], home: Path, database_url: str, kept: Kept | None) -> Manifest:
    with dump.snapshot(database_url) as (name, connection):
        named = _named(connection)
        if kept is not None:
            kept.gather()
        found = {} if kept is None else kept.found(named)
        lost = set() if kept is None else set(named) - found.keys()
        if lost:  # or deleted between the snapshot and our look
            with dump.snapshot(database_url) as (_, later):
                lost &= set(_named(later))
        manifest = Manifest(
            format=FORMAT,
            coserve=version("coserve"),
            database_schema=dump.one(connection, "SELECT version_num FROM alembic_version"),
            made_at=int(SystemClock().now().timestamp()),
            num_files=None if kept is None else len(found),
            file_bytes=None if kept is None else sum(found.values()),
            missing=sorted(lost),
            num_batches=int(dump.one(connection, "SELECT count(*) FROM batches")),
        )
        archive = Writer(file, manifest)
        archive.add(DUMP, dump.dumped(database_url, name))
    for path in _own(home):
        archive.add(f"home/{path.relative_to(home)}", _chunks(path))
    for key in found:
        assert kept is not None
        archive.add(f"files/{key}", _chunks(kept.path(key)))
    archive.close()
    file.flush()
    os.fsync(file.fileno())
    return manifest


def _named(connection: psycopg.Connection[tuple[Any, ...]]) -> list[str]:
    return [key for (key,) in connection.execute(NAMED_OBJECTS.encode())]


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

    def found(self, keys: Iterable[str]) -> dict[str, int]:
        """Those of the objects that were there, and their bytes."""
        found = {}
        for key in keys:
            with suppress(FileNotFoundError):
                found[key] = self.path(key).stat().st_size
        return found


@contextmanager
def _kept(objects: Path | None, place: Path | None) -> Iterator[Kept | None]:
    if objects is None or place is None:
        yield None
        return
    objects.mkdir(parents=True, exist_ok=True)
    place.mkdir(mode=0o700)
    try:
        kept = Kept(objects, place)
        kept.gather()
        yield kept
    finally:
        shutil.rmtree(place)


@contextmanager
def _noted(home: Path, made: Sequence[Path]) -> Iterator[None]:
    """Note what is made beside the target, as long as it may be there."""
    if not home.exists():  # then nothing starts on it either
        yield
        return
    with _note(home) as note:
        _remove(home, note)
        os.pwrite(note, json.dumps([str(path) for path in made]).encode(), 0)
        yield
        os.ftruncate(note, 0)


@contextmanager
def _note(home: Path) -> Iterator[int]:
    """The note, locked: one backup at a time, and none while leftovers are removed."""
    path = home / "run" / "backup.lock"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupError(f"Another backup of {home} is being made.") from None
        yield number
    finally:
        os.close(number)


def _remove(home: Path, note: int) -> bool:
    """What the note names, and links that versions without notes have left."""
    try:
        named = [Path(name) for name in json.loads(os.pread(note, 1 << 16, 0))]
    except ValueError:  # empty: the last backup has ended
        named = []
    old = list((home / "files").glob(f"{_LINKS}*"))
    found = [path for path in {*named, *old} if path.exists()]
    for path in found:
        if path.name.startswith(_LINKS):
            shutil.rmtree(path, ignore_errors=True)
        elif path.name.startswith(".") and path.suffix == ".part":
            with suppress(OSError):  # its disk is away, or read-only
                path.unlink()
    os.ftruncate(note, 0)
    return bool(found)


@contextmanager
def _descriptor(path: Path) -> Iterator[Any]:
    """A new file of ours alone; whatever is there under its name goes, now and at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(number, "w+b") as file:
            yield file
    finally:
        path.unlink(missing_ok=True)


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _own(home: Path) -> Sequence[Path]:
    """What a state directory holds besides database and files, and cannot make again alike."""
    named = [home / name for name in OWN_FILES]
    profiles = sorted((home / "profiles").glob("[!.]*.json"))
    return [path for path in (*named, *profiles) if path.is_file()]
