"""Files on a local disk.

    ROOT/objects/<last two characters of the key>/<key>      whole objects, mode 0600
    ROOT/partial/<key>.<random>.part                         being written

An object is written to `partial/`, flushed to the disk, and renamed into place; then its folder
is flushed. So a name under `objects/` always means complete, durable bytes, whatever was killed.
Both folders lie on one file system, or the rename would not be atomic.

Every disk access runs in a thread of the store's own: a slow disk must not stall the streams of
other callers, nor a hung one take the threads of other work.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Final

from api.batch_errors import StorageFull, StoredObjectMissing
from batch.files.base import CHUNK_BYTES, ByteRange, StoredObject, check_key
from service.bulkhead import Bulkhead

_WRITE_BYTES: Final = 512 * 1024
NUM_THREADS: Final = 16
_NEAR_BYTES: Final = 4096
"""What lies between two ranges is read with them up to this."""
_RUN_BYTES: Final = 1024 * 1024
"""None but a single range is longer."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class LocalFileStore:
    """A folder of objects; the folder is made when the first object is written."""

    def __init__(self, root: Path) -> None:
        self._objects = root / "objects"
        self._partial = root / "partial"
        self._threads = Bulkhead("files", NUM_THREADS)

    async def put(self, key: str, chunks: AsyncIterator[bytes]) -> StoredObject:
        final = self._path(key)
        partial = self._partial / f"{key}.{secrets.token_hex(8)}.part"
        try:
            return await self._write(partial, final, chunks)
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise StorageFull from error
            raise

    async def _write(
        self, partial: Path, final: Path, chunks: AsyncIterator[bytes]
    ) -> StoredObject:
        await self._threads.run(_make_folders, partial.parent, final.parent)
        writer = _PartialFile(partial)
        try:
            waiting: list[bytes] = []
            waiting_bytes = 0
            async for chunk in chunks:
                waiting.append(chunk)
                waiting_bytes += len(chunk)
                if waiting_bytes >= _WRITE_BYTES:
                    await self._threads.run(writer.write, waiting)
                    waiting, waiting_bytes = [], 0
            await self._threads.run(writer.write, waiting)
            return await self._threads.run(writer.commit, final)
        finally:
            # Not awaited: a cancelled upload must clean up too. Waits at most for one write.
            writer.discard()

    async def read_range(self, key: str, offset: int, length: int) -> bytes:
        return (await self.read_ranges(key, [ByteRange(offset, length)]))[0]

    async def read_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        return await self._threads.run(_read_ranges, self._path(key), key, ranges)

    async def stream(
        self, key: str, *, offset: int = 0, length: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        # Opened once: a file that is deleted meanwhile is still read to its end.
        file = await self._threads.run(_open, self._path(key), key)
        try:
            if length is None:
                length = os.fstat(file).st_size - offset
            if length < 0:
                raise StoredObjectMissing(key)
            while length:
                step = ByteRange(offset, min(length, CHUNK_BYTES))
                yield await self._threads.run(_read_exactly, file, key, step)
                offset += step.length
                length -= step.length
        finally:
            os.close(file)

    async def size(self, key: str) -> int:
        try:
            return (await self._threads.run(self._path(key).stat)).st_size
        except FileNotFoundError:
            raise StoredObjectMissing(key) from None

    async def delete(self, key: str) -> None:
        await self._threads.run(self._path(key).unlink, missing_ok=True)

    async def discard_interrupted(self, *, older_than_s: float) -> int:
        """See `FileStore.discard_interrupted`; age is measured by the file system's clock."""
        return await self._threads.run(_discard_interrupted, self._partial, older_than_s)

    async def close(self) -> None:
        """Nothing is held open."""

    def _path(self, key: str) -> Path:
        check_key(key)
        return self._objects / key[-2:] / key


class _PartialFile:
    """An object being written, its digest and its size.

    A lock makes `discard` wait for a write that still runs in its thread after a cancellation.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._digest = hashlib.sha256()
        self._size_bytes = 0
        self._lock = threading.Lock()
        self._open = True

    def write(self, chunks: list[bytes]) -> None:
        with self._lock:
            if not self._open:
                return
            for chunk in chunks:
                self._digest.update(chunk)
                self._size_bytes += len(chunk)
                view = memoryview(chunk)
                while view:
                    view = view[os.write(self._file, view) :]

    def commit(self, final: Path) -> StoredObject:
        with self._lock:
            os.fsync(self._file)
            self._path.replace(final)
            sync_folder(final.parent)
        return StoredObject(self._size_bytes, self._digest.hexdigest())

    def discard(self) -> None:
        """Close the file and remove what was not committed; idempotent."""
        with self._lock:
            if self._open:
                self._open = False
                os.close(self._file)
            self._path.unlink(missing_ok=True)


def _make_folders(*folders: Path) -> None:
    for folder in folders:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def sync_folder(folder: Path) -> None:
    """Put names that were made or replaced in a folder on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _open(path: Path, key: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise StoredObjectMissing(key) from None


def _read_ranges(path: Path, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
    """Each range; neighbours are read at once, since every read lets go of Python's lock."""
    found: dict[ByteRange, bytes] = {}
    file = _open(path, key)
    try:
        for run in _runs(ranges):
            start = run[0].offset
            whole = ByteRange(start, max(one.offset + one.length for one in run) - start)
            data = _read_exactly(file, key, whole)
            for one in run:
                found[one] = data[one.offset - start : one.offset - start + one.length]
    finally:
        os.close(file)
    return [found[one] for one in ranges]


def _runs(ranges: Sequence[ByteRange]) -> Iterator[list[ByteRange]]:
    """Ranges in order of their place, those together that lie close to each other."""
    run: list[ByteRange] = []
    for one in sorted(ranges, key=attrgetter("offset")):
        near = run and one.offset - (run[-1].offset + run[-1].length) <= _NEAR_BYTES
        if run and not (near and one.offset + one.length - run[0].offset <= _RUN_BYTES):
            yield run
            run = []
        run.append(one)
    if run:
        yield run


def _read_exactly(file: int, key: str, wanted: ByteRange) -> bytes:
    if wanted.offset < 0 or wanted.length < 0:
        raise StoredObjectMissing(key)
    data = os.pread(file, wanted.length, wanted.offset)
    while len(data) < wanted.length:
        more = os.pread(file, wanted.length - len(data), wanted.offset + len(data))
        if not more:
            raise StoredObjectMissing(key)
        data += more
    return data


def _discard_interrupted(folder: Path, older_than_s: float) -> int:
    if not folder.is_dir():
        return 0
    # A file touched now tells the file system's time, which may be another host's.
    probe = folder / f".now.{secrets.token_hex(8)}"
    probe.touch()
    now_s = probe.stat().st_mtime
    probe.unlink()
    num_discarded = 0
    for partial in folder.glob("*.part"):
        try:
            if now_s - partial.stat().st_mtime >= older_than_s:
                partial.unlink()
                num_discarded += 1
        except OSError:  # its upload has just ended; or one that cannot go, and keeps no other
            continue
    return num_discarded
