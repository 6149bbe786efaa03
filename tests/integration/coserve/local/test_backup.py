"""A backup is of one instant, and what is no backup is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import func, text

from batch.files.local import LocalFileStore
from batch.intake.upload import Upload, record
from coserve.local.backup import BackupError, Kept, back_up, read_manifest, unpack
from store.models import DEFAULT_PROJECT_ID, OutputPart, PartedUpload, UploadedPart
from store.repositories import arrival as arrivals
from store.session import Database
from store.types import new_id
from tests.fixtures.batches import Bench, add_batch, line


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
    assert manifest == read_manifest(target)
    assert (manifest.num_files, manifest.file_bytes, manifest.missing) == (1, 4, [lost])
    assert sorted(path.name for path in (home / "files").iterdir()) == ["objects", "partial"]

    elsewhere = tmp_path / "elsewhere"
    dump = await asyncio.to_thread(unpack, target, elsewhere, elsewhere / "files" / "objects")
    assert dump.exists()
    assert (elsewhere / "secret").read_text() == "s3cret"
    found = [path.name for path in (elsewhere / "files" / "objects").glob("*/*")]
    assert found == [kept]


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

    target, elsewhere = tmp_path / "saved.tar", tmp_path / "elsewhere"
    manifest = await asyncio.to_thread(back_up, target, home, database_url, home / "files/objects")
    assert (manifest.num_files, manifest.missing) == (5, [])
    await asyncio.to_thread(unpack, target, elsewhere, elsewhere / "files" / "objects")
    restored = LocalFileStore(elsewhere / "files")
    assert {key: await restored.size(key) for key in named} == dict.fromkeys(named, 9)


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


async def test_damage_is_noticed(database_url: str, tmp_path: Path) -> None:
    target = tmp_path / "saved.tar"
    await asyncio.to_thread(back_up, target, tmp_path / "home", database_url, None)
    content = bytearray(target.read_bytes())
    content[len(content) // 2] ^= 0xFF
    target.write_bytes(content)
    with pytest.raises(BackupError, match="damaged"):
        unpack(target, tmp_path / "elsewhere", None)


def test_what_is_no_backup(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(b"hello")
    with pytest.raises(BackupError, match="no backup"):
        read_manifest(path)


async def test_a_database_away_is_said(tmp_path: Path) -> None:
    url = f"postgresql+psycopg://app@/app?host={tmp_path}"
    with pytest.raises(BackupError, match="cannot be read"):
        await asyncio.to_thread(back_up, tmp_path / "x.tar", tmp_path / "home", url, None)
    assert list(tmp_path.iterdir()) == []
