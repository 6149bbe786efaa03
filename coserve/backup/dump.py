"""A database as one stream of bytes, and back, with Postgres' own programs.

Nothing is written beside: what `pg_dump` says goes into the archive as it comes, and from there
into `pg_restore`. Passwords go through the environment, where no list of processes shows them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, Final

import psycopg
from sqlalchemy.engine import make_url

from coserve.backup.archive import BackupError
from coserve.local import postgres

_CHUNK_BYTES: Final = 1 << 20
_ONE_LOAD: Final = 7263458101
"""The advisory lock that a load holds until its transaction has ended."""

_LIBPQ: Final = {
    "host": "PGHOST",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
}


@contextmanager
def snapshot(url: str) -> Iterator[tuple[str, psycopg.Connection[tuple[Any, ...]]]]:
    """A snapshot's name, and a connection that reads it. Raises BackupError."""
    with _connected(url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield one(connection, "SELECT pg_export_snapshot()"), connection


def dumped(url: str, name: str) -> Iterator[bytes]:
    """The dump of a snapshot, while its transaction is open. Raises BackupError."""
    with tempfile.TemporaryFile() as said, _program(
        "pg_dump", url, f"--snapshot={name}", "-Fc", stdout=subprocess.PIPE, stderr=said
    ) as process:  # fmt: skip
        assert process.stdout is not None
        while chunk := process.stdout.read(_CHUNK_BYTES):
            yield chunk
        _check_end("pg_dump", process, said)


def load(dump: IO[bytes], url: str, mark: str) -> None:
    """Fill an empty database, and leave `mark` in it: both or neither, whatever is killed.

    The commit is written by hand once all of the dump was read: a script that is cut off by the
    death of this process or of `pg_restore` ends without one.

    Raises:
        BackupError: The dump or the database does not take part.
    """
    assert re.fullmatch(r"\w+", mark)
    with (
        tempfile.TemporaryFile() as said,
        tempfile.TemporaryFile() as read,
        _program(
            "psql", url, "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--file=-",
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said,
        ) as psql,
    ):  # fmt: skip
        assert psql.stdin is not None
        reader: subprocess.Popen[bytes] | None = None
        try:
            psql.stdin.write(f"BEGIN; SELECT pg_advisory_xact_lock({_ONE_LOAD});\n".encode())
            psql.stdin.flush()
            argv = [str(postgres.program("pg_restore")), "--no-owner", "--file=-"]
            reader = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=psql.stdin, stderr=read, env=_environment({})
            )
            _feed(dump, reader)
            if reader.wait() == 0:
                psql.stdin.write(
                    f"COMMENT ON TABLE public.alembic_version IS '{mark}'; COMMIT;\n".encode()
                )
            psql.stdin.close()
        except BrokenPipeError:  # psql has ended, and says why
            pass
        finally:
            if reader is not None:
                reader.kill()
                reader.wait()
        _check_end("psql", psql, said)
        _check_end("pg_restore", reader, read)


def mark_of(url: str) -> str | None:
    """What `load` left in a database; waits for a load that has not ended. Raises BackupError."""
    with _connected(url) as connection:
        connection.execute(f"SELECT pg_advisory_xact_lock({_ONE_LOAD})")
    with _connected(url) as connection:
        found = one(
            connection, "SELECT obj_description(to_regclass('public.alembic_version'), 'pg_class')"
        )
    return None if found == "None" else found


def is_empty(url: str) -> bool:
    """Whether a database has no tables of coserve yet. Raises BackupError."""
    with _connected(url) as connection:
        return one(connection, "SELECT to_regclass('public.alembic_version')") == "None"


def one(connection: psycopg.Connection[tuple[Any, ...]], query: str) -> str:
    """The only value of a query, as text."""
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return str(row[0])


@contextmanager
def _connected(url: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    try:
        with psycopg.connect(**_parameters(url)) as connection:
            yield connection
    except psycopg.Error as error:
        raise BackupError(f"The database cannot be read: {str(error).splitlines()[0]}") from error


def _feed(dump: IO[bytes], reader: subprocess.Popen[bytes]) -> None:
    assert reader.stdin is not None
    with suppress(BrokenPipeError), reader.stdin as into:  # it has ended: its status says how
        shutil.copyfileobj(dump, into, _CHUNK_BYTES)


@contextmanager
def _program(name: str, url: str, *arguments: str, **files: Any) -> Iterator[Any]:
    """One of Postgres' programs; it does not outlive the block."""
    parameters = _parameters(url)
    named = {_LIBPQ[key]: str(value) for key, value in parameters.items() if key in _LIBPQ}
    argv = [str(postgres.program(name)), f"--dbname={parameters['dbname']}", *arguments]
    given = {"stdin": subprocess.DEVNULL, **files}
    process = subprocess.Popen(argv, env=_environment(named), **given)
    try:
        yield process
    finally:
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        process.wait()


def _environment(named: dict[str, str]) -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", **named}


def _check_end(name: str, process: subprocess.Popen[bytes] | None, said: IO[bytes]) -> None:
    code = None if process is None else process.wait()
    if code:
        said.seek(0)
        lines = said.read(65536).decode(errors="replace").strip().splitlines()
        raise BackupError(f"{name} failed: {(lines or ['it did not say why'])[0]}")


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
