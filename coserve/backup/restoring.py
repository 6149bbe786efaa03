"""A backup back into an empty place: the old state or the new one, whatever is killed when.

    1. The archive is checked whole (`Archive.check`). Nothing here was touched so far.
    2. Files are laid beside their places: `HOME/.restore`, and `.restore` beside the objects.
    3. The database is filled in one transaction, which leaves the archive's id in it. That commit
       is the moment at which the new state counts.
    4. The files are renamed to their places, and `.restore` goes.

Who was killed between 2 and 4 is told apart by that id: with it in the database `finish` does 4,
without it `finish` removes what was laid. Every start on the state directory calls it.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import IO, Final

from coserve.backup import dump
from coserve.backup.archive import Archive, BackupError

_STAGED: Final = ".restore"
_WHAT: Final = "what.json"
_CHUNK_BYTES: Final = 1 << 20


def restore(archive: Archive, home: Path, url: str, objects: Path | None, place: str) -> None:
    """Fill an empty database and its files from an archive that was checked.

    Args:
        archive: The backup.
        home: The state directory, under its lock.
        url: The database, as SQLAlchemy has it.
        objects: The local folder of objects; none where files are in a store of their own.
        place: What the database is called in a refusal.

    Raises:
        BackupError: It is not empty, or has no place for the files of this backup.
    """
    if finish(home, url) == archive.id:  # it was killed at the end of this very restore
        return
    if not dump.is_empty(url):
        raise BackupError(
            f"{place} has tables already; a backup is restored to an empty database. "
            "Move what is there away first."
        )
    if objects is None and archive.manifest.num_files:
        raise BackupError(
            f"{archive.path} holds {archive.manifest.num_files:,} files, and COSERVE_FILES_URL "
            "names a store that they cannot be put into. Restore with a local folder first."
        )
    try:
        _stage(archive, home, objects)
        dump.load(archive.dump(), url, archive.id)
    except OSError as error:
        raise BackupError(f"{error.filename or home}: {error.strerror}.") from error
    except tarfile.TarError as error:
        raise BackupError(f"{archive.path} has changed since it was checked: {error}.") from error
    finally:
        finish(home, url)


def finish(home: Path, url: str) -> str | None:
    """End a restore that was cut off, forwards or backwards; the archive's id if forwards.

    Call it under the state directory's lock.

    Raises:
        BackupError: The database does not answer, so that nobody knows.
    """
    staged = home / _STAGED
    if not staged.exists():
        return None
    try:
        what = json.loads((staged / _WHAT).read_text())
    except (OSError, ValueError):  # killed before anything was laid, or after all was moved
        shutil.rmtree(home / "files" / _STAGED, ignore_errors=True)
        shutil.rmtree(staged)
        return None
    objects = None if what["objects"] is None else Path(what["objects"])
    forwards = dump.mark_of(url) == what["id"]
    if forwards:
        _move(staged, home, objects)
    if objects is not None:
        shutil.rmtree(objects.parent / _STAGED, ignore_errors=True)
    # First that name: without it the rest is rubbish, whoever is killed here.
    (staged / _WHAT).unlink()
    shutil.rmtree(staged)
    return str(what["id"]) if forwards else None


def _stage(archive: Archive, home: Path, objects: Path | None) -> None:
    staged = home / _STAGED
    what = {"id": archive.id, "objects": None if objects is None else str(objects.absolute())}
    _lay(staged / _WHAT, io.BytesIO(json.dumps(what).encode()))
    for name, content in archive.members():
        room, _, rest = name.partition("/")
        if room == "home":
            path = staged / rest
        else:
            assert objects is not None
            path = objects.parent / _STAGED / rest
        _lay(path, content)
    os.sync()  # the names too: what follows may not be on the disk before them


def _move(staged: Path, home: Path, objects: Path | None) -> None:
    """Rename what was laid to its place; what an earlier try has moved is not there any more."""
    if objects is not None:
        for path in (objects.parent / _STAGED).glob("*"):
            folder = objects / path.name[-2:]
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.replace(folder / path.name)
    for path in [each for each in staged.rglob("*") if each.is_file()]:
        if path == staged / _WHAT:
            continue
        target = home / path.relative_to(staged)
        target.parent.mkdir(mode=0o700, exist_ok=True)
        path.replace(target)
    os.sync()


def _lay(path: Path, content: IO[bytes]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(number, "wb") as file:
        shutil.copyfileobj(content, file, _CHUNK_BYTES)
        file.flush()
        os.fsync(file.fileno())
