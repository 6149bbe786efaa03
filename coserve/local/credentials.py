"""Secrets the local stack makes for itself: files of mode 0600 in the state directory."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from sqlalchemy.exc import IntegrityError

from store.models.project import DEFAULT_PROJECT_ID
from store.repositories import key as keys
from store.session import Database

ADMIN_KEY_FILE = "admin-key"
SECRET_FILE = "secret"


def write_secret(path: Path, text: str) -> None:
    """Replace `path` as a whole, readable by its owner alone from the first byte on."""
    partial = path.with_name(f".{path.name}.part")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return ""


def session_secret(home: Path) -> str:
    """What signs dashboard sessions: made once."""
    path = home / SECRET_FILE
    secret = _read(path)
    if not secret:
        secret = secrets.token_urlsafe(32)
        write_secret(path, secret)
    return secret


async def ensure_admin_key(database: Database, home: Path) -> tuple[str, bool]:
    """The admin key of this state directory and whether it was made just now.

    The file is written before the row: a crash in between leaves a file whose key the next start
    puts into the database. A key that was revoked is not revived: a new one takes its place.
    """
    path = home / ADMIN_KEY_FILE
    plaintext = _read(path)
    if plaintext:
        path.chmod(0o600)
        async with database.unit_of_work() as session:
            if await keys.find_by_plaintext(session, plaintext) is not None:
                return plaintext, False
        try:
            await _insert(database, plaintext)
        except IntegrityError:  # there, but revoked
            pass
        else:
            return plaintext, False
    plaintext = keys.KEY_PREFIX + secrets.token_urlsafe(32)
    write_secret(path, plaintext)
    await _insert(database, plaintext)
    return plaintext, True


async def _insert(database: Database, plaintext: str) -> None:
    async with database.unit_of_work() as session:
        await keys.create(session, DEFAULT_PROJECT_ID, "admin", role="admin", plaintext=plaintext)
