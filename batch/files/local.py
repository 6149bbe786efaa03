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

import asyncio
import errno
import hashlib
import logging
import os
import secrets
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from api.batch_errors import StorageFull, StorageUnavailable, StoredObjectMissing
from batch.files.base import CHUNK_BYTES, ByteRange, StoredObject, check_key
from service.bulkhead import Bulkhead

logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

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
        writer = _PartialFile(self._partial / f"{key}.{secrets.token_hex(8)}.part", final)
        try:
            waiting: list[bytes] = []
            waiting_bytes = 0
            async for chunk in chunks:
                waiting.append(chunk)
                waiting_bytes += len(chunk)
                if waiting_bytes >= _WRITE_BYTES:
                    await self._run(writer.write, waiting)
                    waiting, waiting_bytes = [], 0
            return await self._run(writer.commit, waiting)
        except BaseException:
            # Waited for, and done in any case: a cancelled upload must clean up too.
            await _to_its_end(self._run(writer.discard))
            raise

    async def read_range(self, key: str, offset: int, length: int) -> bytes:
        return (await self.read_ranges(key, [ByteRange(offset, length)]))[0]

    async def read_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        return await self._run(_read_ranges, self._path(key), key, ranges)

    async def stream(
        self, key: str, *, offset: int = 0, length: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        # Opened once: a file that is deleted meanwhile is still read to its end.
        file = _OpenFile()
        try:
            size_bytes = await self._run(file.open, self._path(key), key)
            if length is None:
                length = size_bytes - offset
            if length < 0:
                raise StoredObjectMissing(key)
            while length:
                step = ByteRange(offset, min(length, CHUNK_BYTES))
                yield await self._run(file.read, step)
                offset += step.length
                length -= step.length
        finally:
            # The last one to close a file that was deleted frees its bytes, which takes long.
            await _to_its_end(self._threads.run(file.close))

    async def size(self, key: str) -> int:
        try:
            return (await self._run(self._path(key).stat)).st_size
        except FileNotFoundError:
            raise StoredObjectMissing(key) from None

    async def delete(self, key: str) -> None:
        await self._run(self._path(key).unlink, missing_ok=True)

    async def discard_interrupted(self, *, older_than_s: float) -> int:
        """See `FileStore.discard_interrupted`; age is measured by the file system's clock."""
        return await self._run(_discard_interrupted, self._partial, older_than_s)

    async def close(self) -> None:
        """Nothing is held open."""

    async def _run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Work on the disk in a thread; what the disk refuses is an error of the store."""
        try:
            return await self._threads.run(work, *args, **kwargs)
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise StorageFull from error
            logger.warning("file store: %s", error)
            raise StorageUnavailable("cannot be used") from error

    def _path(self, key: str) -> Path:
        check_key(key)
        return self._objects / key[-2:] / key


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Wait for it, however often the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


class _PartialFile:
    """An object being written, its digest and its size; made by the first thread that writes.

    A lock makes `discard` wait for a write that still runs in its thread after a cancellation.

    Invariant: `_file` is open exactly while something was written and neither `commit` nor
    `discard` has ended.
    """

    def __init__(self, path: Path, final: Path) -> None:
        self._path = path
        self._final = final
        self._file: int | None = None
        self._digest = hashlib.sha256()
        self._size_bytes = 0
        self._lock = threading.Lock()
        self._is_given_up = False

    def write(self, chunks: list[bytes]) -> None:
        with self._lock:
            self._append(chunks)

    def _append(self, chunks: list[bytes]) -> int:
        """Write more; the file.

        Raises:
            FileNotFoundError: It was given up.
        """
        if self._is_given_up:
            raise FileNotFoundError(self._path)
        if self._file is None:
            _make_folders(self._path.parent, self._final.parent)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o600)
        for chunk in chunks:
            self._digest.update(chunk)
            self._size_bytes += len(chunk)
            view = memoryview(chunk)
            while view:
                view = view[os.write(self._file, view) :]
        return self._file

    def commit(self, chunks: list[bytes]) -> StoredObject:
        """Write the last of it, and give it its name."""
        with self._lock:
            os.fsync(self._append(chunks))
            self._path.replace(self._final)
            sync_folder(self._final.parent)
            self._close()
        return StoredObject(self._size_bytes, self._digest.hexdigest())

    def discard(self) -> None:
        """Close the file and remove what was not committed; idempotent."""
        with self._lock:
            self._is_given_up = True
            if self._file is not None:
                self._close()
                self._path.unlink(missing_ok=True)

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


class _OpenFile:
    """A file being read; a lock makes `close` wait for a thread whose caller has given up."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._key = ""
        self._lock = threading.Lock()
        self._is_closed = False

    def open(self, path: Path, key: str) -> int:
        """Open it, unless it was closed already; its size."""
        with self._lock:
            if self._is_closed:
                raise StoredObjectMissing(key)
            self._file, self._key = _open(path, key), key
            return os.fstat(self._file).st_size

    def read(self, wanted: ByteRange) -> bytes:
        with self._lock:
            if self._file is None:
                raise StoredObjectMissing(self._key)
            return _read_exactly(self._file, self._key, wanted)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            file, self._file = self._file, None
            if file is not None:
                os.close(file)


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
