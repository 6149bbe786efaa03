"""What only a disk can do wrong."""

from __future__ import annotations

import asyncio
import os
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.batch_errors import StorageFull
from batch.files import file_store_from_url, local
from batch.files.base import ByteRange
from batch.files.local import LocalFileStore
from batch.files.memory import MemoryFileStore

KILLED_WHILE_WRITING = """
import asyncio, os, signal, sys
from pathlib import Path
from batch.files.local import LocalFileStore

async def chunks():
    yield b"x" * 2_000_000
    await asyncio.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)
    yield b""

asyncio.run(LocalFileStore(Path(sys.argv[1])).put("file-1", chunks()))
"""


async def chunks(*data: bytes) -> AsyncIterator[bytes]:
    for one in data:
        yield one


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_objects_are_private(tmp_path: Path) -> None:
    await LocalFileStore(tmp_path / "files").put("file-1", chunks(b"secret"))
    [path] = files_below(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) & 0o077 == 0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12))
def test_ranges_that_are_read_together_are_those_that_were_asked_for(
    asked: list[tuple[int, int]],
) -> None:
    content = bytes(range(80))
    ranges = [ByteRange(offset, length) for offset, length in asked]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "_NEAR_BYTES", 3)
        patch.setattr(local, "_RUN_BYTES", 25)
        store = LocalFileStore(Path(folder))

        async def run() -> list[bytes]:
            await store.put("file-1", chunks(content))
            return await store.read_ranges("file-1", ranges)

        found = asyncio.run(run())
    assert found == [content[offset : offset + length] for offset, length in asked]


async def test_a_process_killed_while_writing_leaves_only_what_is_discarded(
    tmp_path: Path,
) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_WRITING, str(tmp_path)], cwd=Path.cwd(), check=False
    )
    assert killed.returncode == -9
    [partial] = files_below(tmp_path)
    assert partial.suffix == ".part"
    store = LocalFileStore(tmp_path)
    assert await store.discard_interrupted(older_than_s=3600) == 0
    assert partial.exists()
    os.utime(partial, (0, 0))
    assert await store.discard_interrupted(older_than_s=3600) == 1
    assert files_below(tmp_path) == []


async def test_discarding_before_anything_was_stored(tmp_path: Path) -> None:
    assert await LocalFileStore(tmp_path / "files").discard_interrupted(older_than_s=0) == 0


async def test_no_room_is_said_and_nothing_is_kept(tmp_path: Path) -> None:
    """A limit on the size of a file stands in for a full disk: the write fails the same way."""
    store = LocalFileStore(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, hard))
    try:
        with pytest.raises(StorageFull):
            await store.put("file-1", chunks(b"x" * 550_000, b"x" * 550_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert files_below(tmp_path) == []


async def test_no_room_in_the_fake() -> None:
    store = MemoryFileStore(capacity_bytes=10)
    await store.put("a", chunks(b"123456"))
    with pytest.raises(StorageFull):
        await store.put("b", chunks(b"12345"))
    await store.put("a", chunks(b"1234567890"))
    assert store.keys() == ["a"]


async def test_urls(tmp_path: Path) -> None:
    store = file_store_from_url(f"{tmp_path.as_uri()}/with%20space")
    await store.put("file-1", chunks(b"a"))
    assert (tmp_path / "with space" / "objects").is_dir()
    assert isinstance(file_store_from_url("memory://"), MemoryFileStore)


@pytest.mark.parametrize("url", ["", "files", "file://host/x", "ftp://x/y", "s3://"])
def test_urls_that_name_no_store(url: str) -> None:
    with pytest.raises(ValueError, match="file store"):
        file_store_from_url(url)


TOUCHES = {"open", "os.remove", "os.rename", "os.mkdir", "os.truncate"}
touched: dict[str, set[int]] = {}
"""Threads that touched what lies below a folder; a hook of the interpreter stays."""


def note_touch(event: str, args: tuple[object, ...]) -> None:
    if event in TOUCHES and isinstance(args[0], (str, Path)):
        for folder, threads in touched.items():
            if str(args[0]).startswith(folder):
                threads.add(threading.get_ident())


async def test_the_loop_touches_no_disk(tmp_path: Path) -> None:
    """Not even to make a file: while others flush theirs, that waits for the disk's journal."""
    sys.addaudithook(note_touch)
    root = tmp_path / "files"
    threads = touched.setdefault(str(root), set())
    store = LocalFileStore(root)
    await store.put("file-1", chunks(b"a" * 600_000, b"b"))
    async for _ in store.stream("file-1"):
        pass
    await store.read_range("file-1", 0, 1)
    interrupted = asyncio.ensure_future(store.put("file-2", silent(b"c" * 600_000)))
    while not list((root / "partial").glob("file-2.*")):
        await asyncio.sleep(0.01)
    interrupted.cancel()
    await asyncio.wait((interrupted,))
    await store.delete("file-1")
    assert not files_below(root)
    touched.pop(str(root))
    assert threads
    assert threading.get_ident() not in threads


async def silent(*data: bytes) -> AsyncIterator[bytes]:
    for one in data:
        yield one
    await asyncio.Event().wait()


async def test_a_cancelled_upload_waits_for_its_flush_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, over = threading.Event(), threading.Event()
    late: list[bool] = []
    fsync = os.fsync

    def slow(file: int) -> None:
        begun.set()
        late.append(not over.wait(10))
        fsync(file)

    monkeypatch.setattr(os, "fsync", slow)
    store = LocalFileStore(tmp_path / "files")
    put = asyncio.ensure_future(store.put("file-1", chunks(b"abc")))
    await asyncio.to_thread(begun.wait, 10)
    for _ in range(3):
        put.cancel()
        await asyncio.sleep(0.01)
    assert not put.done(), "its bytes are not known to be gone"
    over.set()
    await asyncio.wait((put,))
    assert put.cancelled()
    assert not any(late), "the loop went on"
    assert not list((tmp_path / "files" / "partial").iterdir())
