"""What every file store must do, run over each of them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from batch.errors import StoredObjectMissing
from batch.files import ByteRange, FileStore
from batch.files.local import LocalFileStore
from batch.files.memory import MemoryFileStore
from batch.files.s3 import ObjectFileStore

MAKERS: dict[str, Callable[[Path], FileStore]] = {
    "local": lambda folder: LocalFileStore(folder / "files"),
    "memory": lambda folder: MemoryFileStore(),
    # The S3 store's own code over obstore's in-memory backend; no bucket is involved.
    "obstore": lambda folder: ObjectFileStore(MemoryStore()),
}


@pytest.fixture(params=sorted(MAKERS))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FileStore:
    return MAKERS[request.param](tmp_path)


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


async def test_a_source_that_fails_leaves_nothing_and_its_own_exception(store: FileStore) -> None:
    with pytest.raises(ConnectionResetError, match="gone"):
        await store.put("file-1", broken(b"x" * 700_000))
    with pytest.raises(StoredObjectMissing):
        await store.size("file-1")


async def test_a_source_that_fails_leaves_the_older_object(store: FileStore) -> None:
    await store.put("file-1", chunks(b"old"))
    with pytest.raises(ConnectionResetError):
        await store.put("file-1", broken(b"new"))
    assert await read(store, "file-1") == b"old"


async def test_a_cancelled_put_leaves_nothing(store: FileStore) -> None:
    started = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"x" * 700_000
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
