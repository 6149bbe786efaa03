"""What every file store must do, run over each of them."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from api.batch_errors import StoredObjectMissing
from batch.files import ByteRange, FileStore
from batch.files.local import LocalFileStore
from batch.files.memory import MemoryFileStore

MIB = 1024 * 1024


@pytest.fixture
def local_store(tmp_path: Path) -> FileStore:
    return LocalFileStore(tmp_path / "files")


@pytest.fixture
def memory_store() -> FileStore:
    return MemoryFileStore()


@pytest.fixture(params=["local_store", "memory_store", "s3_store"])
def store(request: pytest.FixtureRequest) -> FileStore:
    found: FileStore = request.getfixturevalue(request.param)
    return found


async def chunks(*data: bytes) -> AsyncIterator[bytes]:
    for one in data:
        await asyncio.sleep(0)
        yield one


async def broken(*data: bytes) -> AsyncIterator[bytes]:
    for one in data:
        yield one
    raise ConnectionResetError("gone")


async def read(store: FileStore, key: str, offset: int = 0, length: int | None = None) -> bytes:
    async with aclosing(store.stream(key, offset=offset, length=length)) as stream:
        return b"".join([chunk async for chunk in stream])


async def test_what_was_put_is_read_back(store: FileStore) -> None:
    data = bytes(range(256)) * 8192
    stored = await store.put("file-1", chunks(data[:1], b"", data[1:900_000], data[900_000:]))
    assert stored.size_bytes == len(data) == await store.size("file-1")
    assert stored.sha256 == hashlib.sha256(data).hexdigest()
    assert await read(store, "file-1") == data
    await store.close()


async def test_more_than_one_part(store: FileStore) -> None:
    data = random.Random(7).randbytes(12 * MIB)
    stored = await store.put(
        "file-1", chunks(*(data[at : at + MIB] for at in range(0, 12 * MIB, MIB)))
    )
    assert stored.size_bytes == len(data)
    assert stored.sha256 == hashlib.sha256(data).hexdigest()
    assert await read(store, "file-1") == data
    assert await read(store, "file-1", 5 * MIB - 1, 2) == data[5 * MIB - 1 : 5 * MIB + 1]
    assert await store.read_range("file-1", 11 * MIB, MIB) == data[11 * MIB :]


async def test_an_empty_object(store: FileStore) -> None:
    stored = await store.put("empty", chunks())
    assert stored.size_bytes == 0
    assert stored.sha256 == hashlib.sha256().hexdigest()
    assert await read(store, "empty") == b""
    assert await store.read_range("empty", 0, 0) == b""


async def test_ranges(store: FileStore) -> None:
    await store.put("file-1", chunks(b"0123456789"))
    assert await store.read_range("file-1", 3, 4) == b"3456"
    assert await store.read_range("file-1", 10, 0) == b""
    wanted = [ByteRange(8, 2), ByteRange(0, 1), ByteRange(2, 0), ByteRange(0, 10)]
    assert await store.read_ranges("file-1", wanted) == [b"89", b"0", b"", b"0123456789"]
    assert await store.read_ranges("file-1", []) == []
    assert await read(store, "file-1", 4) == b"456789"
    assert await read(store, "file-1", 4, 2) == b"45"
    assert await read(store, "file-1", 10) == b""


@pytest.mark.parametrize(("offset", "length"), [(8, 3), (11, 1), (-1, 2), (0, -1)])
async def test_a_range_outside_of_the_object(store: FileStore, offset: int, length: int) -> None:
    await store.put("file-1", chunks(b"0123456789"))
    with pytest.raises(StoredObjectMissing):
        await store.read_range("file-1", offset, length)
    with pytest.raises(StoredObjectMissing):
        await read(store, "file-1", offset, length)


async def test_an_unknown_key(store: FileStore) -> None:
    with pytest.raises(StoredObjectMissing):
        await store.size("nothing")
    with pytest.raises(StoredObjectMissing):
        await store.read_range("nothing", 0, 1)
    with pytest.raises(StoredObjectMissing):
        await read(store, "nothing")
    await store.delete("nothing")


async def test_delete(store: FileStore) -> None:
    await store.put("file-1", chunks(b"a"))
    await store.delete("file-1")
    with pytest.raises(StoredObjectMissing):
        await store.size("file-1")
    await store.delete("file-1")


async def test_putting_again_replaces(store: FileStore) -> None:
    await store.put("file-1", chunks(b"a longer one"))
    await store.put("file-1", chunks(b"short"))
    assert await read(store, "file-1") == b"short"


@pytest.mark.parametrize("num_bytes", [700_000, 11 * MIB])
async def test_a_source_that_fails_leaves_nothing_and_its_own_exception(
    store: FileStore, num_bytes: int
) -> None:
    with pytest.raises(ConnectionResetError, match="gone"):
        await store.put("file-1", broken(b"x" * num_bytes))
    with pytest.raises(StoredObjectMissing):
        await store.size("file-1")


async def test_a_source_that_fails_leaves_the_older_object(store: FileStore) -> None:
    await store.put("file-1", chunks(b"old"))
    with pytest.raises(ConnectionResetError):
        await store.put("file-1", broken(b"new"))
    assert await read(store, "file-1") == b"old"


@pytest.mark.parametrize("num_bytes", [700_000, 11 * MIB])
async def test_a_cancelled_put_leaves_nothing(store: FileStore, num_bytes: int) -> None:
    started = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"x" * num_bytes
        started.set()
        await asyncio.sleep(3600)
        yield b"never"

    async def put() -> None:
        await store.put("file-1", endless())

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(put())
        await started.wait()
        task.cancel()
    assert task.cancelled()
    with pytest.raises(StoredObjectMissing):
        await store.size("file-1")


async def test_puts_at_once_do_not_mix(store: FileStore) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number in range(8):
            data = bytes([number]) * 100_000
            tasks.create_task(store.put(f"file-{number}", chunks(data, data)))
    for number in range(8):
        assert await read(store, f"file-{number}") == bytes([number]) * 200_000


@pytest.mark.parametrize("key", ["", "../x", "a/b", "A", ".hidden", "x" * 129, "a\0", "a b"])
async def test_keys_that_could_leave_the_store(store: FileStore, key: str) -> None:
    with pytest.raises(ValueError, match="not a storage key"):
        await store.put(key, chunks(b""))
    with pytest.raises(ValueError, match="not a storage key"):
        await store.size(key)
