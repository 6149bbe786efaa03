"""A backup is of one instant, and what is no backup is refused."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from sqlalchemy import func, text

from batch.files.local import LocalFileStore
from batch.intake.upload import Upload, record
from coserve.backup.archive import Archive, BackupError, Manifest
from coserve.backup.making import Kept, back_up, sweep
from store.models import DEFAULT_PROJECT_ID, OutputPart, PartedUpload, UploadedPart
from store.repositories import arrival as arrivals
from store.session import Database
from store.types import new_id
from tests.fixtures.batches import Bench, add_batch, line, until
from tests.fixtures.supervised import COSERVE, clean_environment


def told(path: Path) -> Manifest:
    with Archive(path) as archive:
        return archive.manifest


def contents(path: Path) -> dict[str, bytes]:
    with Archive(path) as archive:
        archive.check()
        return {name: content.read() for name, content in archive.members()}


def waits_in_pg_dump(pid: int) -> bool:
    return any(child.name() == "pg_dump" for child in psutil.Process(pid).children())


async def chunks(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def put(database: Database, store: LocalFileStore, content: bytes) -> str:
    file_id = new_id("file-")
    stored = await store.put(file_id, chunks(content))
    async with database.unit_of_work() as session:
        await arrivals.announce(session, file_id)
        await record(session, Upload(file_id, "x", "batch", stored, None), DEFAULT_PROJECT_ID)
    return file_id


async def test_what_the_database_names_is_in_it_and_nothing_else(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    store = LocalFileStore(home / "files")
    kept = await put(database, store, b"kept")
    lost = await put(database, store, b"lost")
    objects = home / "files" / "objects"
    (objects / lost[-2:] / lost).unlink()
    (objects / "zz").mkdir()
    (objects / "zz" / "file-never-announced-zz").write_bytes(b"x")
    (home / "secret").write_text("s3cret")
    target = tmp_path / "saved.tar"
    manifest = await asyncio.to_thread(back_up, target, home, database_url, objects)
    assert manifest == told(target)
    assert (manifest.num_files, manifest.file_bytes, manifest.missing) == (1, 4, [lost])
    assert sorted(path.name for path in (home / "files").iterdir()) == ["objects", "partial"]

    assert contents(target) == {"home/secret": b"s3cret", f"files/{kept}": b"kept"}


async def test_what_nobody_can_read_any_more_is_neither_kept_nor_missed(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    """Their bytes go at once, their rows at the next collection."""
    home = tmp_path / "home"
    store = LocalFileStore(home / "files")
    deleted, expired, left, input_of_live = [
        await put(database, store, content) for content in (b"d", b"e", b"l", b"i")
    ]
    lost = await put(database, store, b"lost")
    batch_id = await add_batch(database, Bench(database).file_store, [line("a")])
    async with database.unit_of_work() as session:
        for change in (
            "UPDATE files SET deleted_at = now() WHERE id IN (:deleted, :left)",
            "UPDATE files SET expires_at = now() WHERE id IN (:expired, :live)",
            "UPDATE files SET collected_at = now() WHERE storage_key = ("
            "  SELECT f.storage_key FROM batches b JOIN files f ON f.id = b.input_file_id"
            "  WHERE b.id = :batch)",
            "UPDATE batches SET input_file_id = :live WHERE id = :batch",
        ):
            names = {"deleted": deleted, "left": left, "expired": expired}
            names |= {"live": input_of_live, "batch": batch_id}
            used = {name: value for name, value in names.items() if f":{name}" in change}
            await session.execute(text(change), used)
    for key in (deleted, expired, lost):
        await store.delete(key)

    target = tmp_path / "saved.tar"
    manifest = await asyncio.to_thread(back_up, target, home, database_url, home / "files/objects")
    assert manifest.missing == [lost]
    assert contents(target) == {f"files/{input_of_live}": b"i"}


async def test_every_part_of_a_file_and_of_an_open_upload_is_in_it(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    store = LocalFileStore(home / "files")
    whole = await put(database, store, b"123456789")
    batch_id = await add_batch(database, Bench(database).file_store, [line("a")])
    named = {whole, f"{whole}-2", "file-writing", "file-writing-2", "part_open"}
    async with database.unit_of_work() as session:
        await session.execute(
            text("UPDATE files SET part_bytes = '{4,5}' WHERE id = :id"), {"id": whole}
        )
        # The batch's own input lies in another store.
        await session.execute(
            text("UPDATE files SET collected_at = now() WHERE id <> :id"), {"id": whole}
        )
        for number in (1, 2):
            session.add(
                OutputPart(
                    file_id="file-writing", number=number, batch_id=batch_id, last_seq=number,
                    num_lines=1, size_bytes=9, sha256="",
                )
            )  # fmt: skip
        for status in ("open", "cancelled"):
            upload = PartedUpload(
                id=f"upload_{status}", project_id=DEFAULT_PROJECT_ID, filename="x",
                purpose="batch", size_bytes=9, expires_at=func.now(),
                status="pending" if status == "open" else status,
            )  # fmt: skip
            session.add(upload)
            await session.flush()
            session.add(UploadedPart(id=f"part_{status}", upload_id=upload.id, size_bytes=9))
    for key in named - {whole}:
        await store.put(key, chunks(b"123456789"))

    target = tmp_path / "saved.tar"
    manifest = await asyncio.to_thread(back_up, target, home, database_url, home / "files/objects")
    assert (manifest.num_files, manifest.missing) == (5, [])
    assert contents(target) == {f"files/{key}": b"123456789" for key in named}


def test_what_is_deleted_after_the_first_pass_is_kept(tmp_path: Path) -> None:
    objects, place = tmp_path / "objects", tmp_path / "kept"
    for folder in (objects / "aa", place):
        folder.mkdir(parents=True)
    kept = Kept(objects, place)
    (objects / "aa" / "file-first-aa").write_bytes(b"1")
    kept.gather()
    (objects / "aa" / "file-first-aa").unlink()
    (objects / "aa" / "file-later-aa").write_bytes(b"2")
    kept.gather()
    kept.gather()
    assert kept.path("file-first-aa").read_bytes() == b"1"
    assert kept.path("file-later-aa").read_bytes() == b"2"


async def test_a_database_away_is_said(tmp_path: Path) -> None:
    url = f"postgresql+psycopg://app@/app?host={tmp_path}"
    with pytest.raises(BackupError, match="cannot be read"):
        await asyncio.to_thread(back_up, tmp_path / "x.tar", tmp_path / "home", url, None)
    assert list(tmp_path.iterdir()) == []


async def test_one_that_is_killed_leaves_nothing_for_long(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    """Nor a dump in a folder for all: prompts are in it."""
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    for folder in (home, temporary):
        folder.mkdir()
    await put(database, LocalFileStore(home / "files"), b"kept")
    links = home / "files" / ".backup-of-a-version-without-notes"
    links.mkdir()
    target = tmp_path / "to" / "saved.tar"
    env = clean_environment(
        {"DATABASE_URL": database_url, "COSERVE_HOME": str(home), "TMPDIR": str(temporary)}
    )

    def ours() -> list[str]:
        return sorted(path.name for path in (*target.parent.glob("*"), *temporary.glob("*")))

    async with database.unit_of_work() as session:
        await session.execute(text("LOCK TABLE webhook_deliveries"))  # for this pg_dump waits
        process = subprocess.Popen([COSERVE, "backup", target], env=env)
        await until(lambda: target.parent.exists() and ours() == [".saved.tar.part"])
        partial = target.with_name(".saved.tar.part")
        await until(lambda: waits_in_pg_dump(process.pid))
        assert partial.stat().st_mode & 0o777 == 0o600
        assert not links.exists()
        with pytest.raises(BackupError, match="Another backup"):
            back_up(tmp_path / "second.tar", home, database_url, None)
        assert not sweep(home), "not while it runs"
        process.kill()
        process.wait()
    assert ours() == [".saved.tar.part"]
    assert len(list((home / "files").glob(".backup-*"))) == 1
    assert sweep(home)
    assert ours() == []
    assert [path.name for path in (home / "files").glob(".*")] == []
    assert not sweep(home)
