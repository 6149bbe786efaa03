"""A restore that is killed leaves the old state or the new one, and the next start sees to it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from batch.files.local import LocalFileStore
from coserve.backup import dump
from coserve.backup.archive import DUMP, MANIFEST, SUMS, Archive, BackupError, Writer
from coserve.backup.making import back_up
from coserve.backup.restoring import _stage, finish, restore
from coserve.local.postgres import PostgresFiles
from store.session import Database
from tests.fixtures.batches import add_batch, line
from tests.fixtures.supervised import COSERVE, clean_environment, wait_until
from tests.integration.coserve.backup.test_making import put
from tests.unit.coserve.backup.test_archive import of_first_format

NUM_FILES = 40


@pytest.fixture
def empty_url(postgres_server: PostgresFiles) -> Iterator[str]:
    """A database without tables."""
    name = f"restored_{time.monotonic_ns()}"
    with postgres_server.connect() as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    yield postgres_server.url(name)
    with postgres_server.connect() as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
async def saved(database: Database, database_url: str, tmp_path: Path) -> Path:
    """A backup of some files, a batch, a secret and a profile."""
    home = tmp_path / "first"
    store = LocalFileStore(home / "files")
    for number in range(NUM_FILES):
        await put(database, store, b"%d" % number)
    await add_batch(database, store, [line("a")])
    (home / "profiles").mkdir()
    (home / "profiles" / "what.json").write_text("{}")
    (home / "secret").write_text("s3cret")
    path = tmp_path / "saved.tar"
    manifest = await asyncio.to_thread(back_up, path, home, database_url, home / "files/objects")
    assert (manifest.missing, manifest.num_files) == ([], NUM_FILES + 1)
    return path


def start(saved: Path, home: Path, url: str, *options: str) -> subprocess.Popen[str]:
    env = clean_environment({"DATABASE_URL": url, "COSERVE_HOME": str(home)})
    return subprocess.Popen(
        [COSERVE, "restore", *options, saved],
        env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def is_restored(saved: Path, home: Path, url: str) -> None:
    """All of it, and nothing besides."""
    assert not dump.is_empty(url)
    objects = home / "files" / "objects"
    with Archive(saved) as archive:
        for name, content in archive.members():
            room, _, rest = name.partition("/")
            path = home / rest if room == "home" else objects / rest[-2:] / rest
            assert path.read_bytes() == content.read(), name
            assert path.stat().st_mode & 0o777 == 0o600
    assert len(list(objects.glob("*/*"))) == NUM_FILES + 1
    assert nothing_staged(home)
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        assert connection.execute("SELECT count(*) FROM batches").fetchone() == (1,)


def nothing_staged(home: Path) -> bool:
    return not (home / ".restore").exists() and not (home / "files" / ".restore").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.4])
def test_a_restore_that_is_killed_is_repeated(
    after_s: float, saved: Path, empty_url: str, tmp_path: Path
) -> None:
    home = tmp_path / "second"
    first = start(saved, home, empty_url)
    wait_until(lambda: (home / ".restore").exists() or first.poll() is not None, "it began")
    time.sleep(after_s)
    first.kill()
    first.communicate()
    second = start(saved, home, empty_url)
    said = second.communicate(timeout=60)
    if first.returncode == 0 or second.returncode:  # it was killed when all was done
        assert "has tables already" in said[1]
    else:
        assert "1 batches are back" in said[0]
    is_restored(saved, home, empty_url)


def test_one_that_is_killed_before_the_commit_leaves_the_old_state(
    saved: Path, empty_url: str, tmp_path: Path
) -> None:
    home = tmp_path / "second"
    home.mkdir()
    (home / "secret").write_text("old")
    with Archive(saved) as archive:
        _stage(archive, home, home / "files" / "objects")
    assert finish(home, empty_url) is None
    assert dump.is_empty(empty_url)
    assert [path.name for path in home.rglob("*") if path.is_file()] == ["secret"]
    assert (home / "secret").read_text() == "old"
    assert nothing_staged(home)


def test_a_load_that_outlives_its_restore_is_waited_for(
    saved: Path, empty_url: str, tmp_path: Path
) -> None:
    """psql has read all it needs, and commits when nobody is there any more."""
    home = tmp_path / "second"
    with psycopg.connect(empty_url.replace("+psycopg", "")) as other:
        other.execute(f"SELECT pg_advisory_xact_lock({dump._ONE_LOAD})".encode())
        process = start(saved, home, empty_url)
        query = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        wait_until(lambda: other.execute(query.encode()).fetchone() != (0,), "it waits")
        process.kill()
        process.communicate()
    if finish(home, empty_url) is None:
        assert dump.is_empty(empty_url)
        assert [path for path in home.rglob("*/*") if path.parent.name != "run"] == []
        assert nothing_staged(home)
    else:
        is_restored(saved, home, empty_url)


@pytest.mark.parametrize("num_moved", [0, 7])
def test_one_that_is_killed_after_the_commit_is_finished_by_the_next_start(
    num_moved: int, saved: Path, empty_url: str, tmp_path: Path
) -> None:
    home = tmp_path / "second"
    home.mkdir()
    objects = home / "files" / "objects"
    with Archive(saved) as archive:
        _stage(archive, home, objects)
        dump.load(archive.dump(), empty_url, archive.id)
    for path in sorted((home / "files" / ".restore").iterdir())[:num_moved]:
        (objects / path.name[-2:]).mkdir(parents=True, exist_ok=True)
        path.rename(objects / path.name[-2:] / path.name)
    done = start(saved, home, empty_url)
    said = done.communicate(timeout=60)
    assert done.returncode == 0, said[1]
    is_restored(saved, home, empty_url)


def test_a_load_that_fails_leaves_the_old_state(
    saved: Path, empty_url: str, tmp_path: Path
) -> None:
    """A dump that its digest vouches for, and Postgres refuses."""
    with Archive(saved) as archive:
        manifest, whole = archive.manifest, archive.dump().read()
    home = tmp_path / "second"
    for number, content in enumerate((whole[: len(whole) // 2], whole[:-1], b"no dump", b"")):
        path = tmp_path / f"{number}.tar"
        with path.open("w+b") as file:
            writer = Writer(file, manifest)
            writer.add(DUMP, [content])
            writer.add("home/secret", [b"new"])
            for name in range(NUM_FILES + 1):
                writer.add(f"files/file-{name}", [b""])
            writer.close()
        with Archive(path) as archive:
            home.mkdir(exist_ok=True)
            with pytest.raises(BackupError, match=r"pg_restore failed|psql failed"):
                restore(archive, home, empty_url, home / "files" / "objects", "It")
        assert dump.is_empty(empty_url)
        assert not (home / "secret").exists()
        assert nothing_staged(home)


def test_a_damaged_one_touches_nothing(saved: Path, empty_url: str, tmp_path: Path) -> None:
    whole = saved.read_bytes()
    changed = bytearray(whole)
    changed[whole.index(b"s3cret")] ^= 1
    for content in (whole[: len(whole) // 2], bytes(changed)):
        saved.write_bytes(content)
        home = tmp_path / "second"
        process = start(saved, home, empty_url)
        said = process.communicate(timeout=60)
        assert process.returncode == 1
        assert "is damaged" in said[1]
        assert len(said[1].splitlines()) == 1
        assert not home.exists()
        verified = subprocess.run(
            [COSERVE, "backup", "--verify", saved],
            env=clean_environment({"COSERVE_HOME": str(home)}), capture_output=True, text=True,
        )  # fmt: skip
        assert verified.returncode == 1
        assert "is damaged" in verified.stderr
    assert dump.is_empty(empty_url)


def test_one_of_a_version_without_digests_needs_a_word(
    saved: Path, empty_url: str, tmp_path: Path
) -> None:
    with tarfile.open(saved) as tar:
        names = [name for name in tar.getnames() if name not in (MANIFEST, SUMS)]
        members = {name: tar.extractfile(name).read() for name in names}  # type: ignore[union-attr]
        told = json.loads(tar.extractfile(MANIFEST).read())  # type: ignore[union-attr]
    old, home = tmp_path / "old.tar", tmp_path / "second"
    of_first_format(old, members, **{**told, "format": 1, "coserve": "0.1.0"})
    refused = start(old, home, empty_url)
    said = refused.communicate(timeout=60)[1]
    assert refused.returncode == 1
    assert "made by coserve 0.1.0, whose backups have no digests" in said
    assert "coserve restore --without-digests" in said
    assert not home.exists()
    done = start(old, home, empty_url, "--without-digests")
    assert done.communicate(timeout=60)[0].endswith("1 batches are back. Start with: coserve up\n")
    is_restored(old, home, empty_url)


def test_a_store_that_takes_no_files_from_here_is_told(
    saved: Path, empty_url: str, tmp_path: Path
) -> None:
    with Archive(saved) as archive, pytest.raises(BackupError, match="holds 41 files"):
        restore(archive, tmp_path, empty_url, None, "It")


def test_a_database_away_is_said(saved: Path, tmp_path: Path) -> None:
    url = f"postgresql+psycopg://app@/app?host={tmp_path}"
    with Archive(saved) as archive, pytest.raises(BackupError, match="cannot be read"):
        restore(archive, tmp_path, url, tmp_path / "files" / "objects", "It")
    assert nothing_staged(tmp_path)
