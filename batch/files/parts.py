"""Files that lie in several objects: long results are written part by part.

    part 1   <storage key>
    part 2   <storage key>-2
    part 3   <storage key>-3        each whole or not there, as every object

A file of one object has no sizes of parts. The parts read as one file.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Protocol

from api.batch_errors import StoredObjectMissing
from batch.files.base import ByteRange, FileStore


class Parted(Protocol):
    """What must be known of a file to read it: `store.models.File`."""

    @property
    def storage_key(self) -> str:
        """The key of its first object."""
        ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def part_bytes(self) -> Sequence[int] | None:
        """The sizes of its objects, in order; none where there is one."""
        ...


def part_key(storage_key: str, number: int) -> str:
    """The key of a part, counted from 1."""
    return storage_key if number == 1 else f"{storage_key}-{number}"


async def check_there(file_store: FileStore, file: Parted, wanted: ByteRange) -> None:
    """Look for the first and the last object of a range, before anything of it is sent.

    Raises:
        StoredObjectMissing: One is gone, or has another size.
    """
    objects = list(_objects(file))
    inside = [
        (key, size_bytes)
        for key, start, size_bytes in objects
        if start < wanted.offset + wanted.length and wanted.offset < start + size_bytes
    ] or [(key, size_bytes) for key, _, size_bytes in objects[:1]]
    for key, size_bytes in {inside[0], inside[-1]}:
        if await file_store.size(key) != size_bytes:
            raise StoredObjectMissing(key)


async def stream_file(
    file_store: FileStore, file: Parted, wanted: ByteRange
) -> AsyncGenerator[bytes, None]:
    """The bytes of a range of the file; close the iterator if it is not read to its end."""
    end = wanted.offset + wanted.length
    for key, start, size_bytes in _objects(file):
        first, last = max(wanted.offset, start), min(end, start + size_bytes)
        if first >= last:
            continue
        part = file_store.stream(key, offset=first - start, length=last - first)
        async with aclosing(part) as chunks:
            async for chunk in chunks:
                yield chunk


async def delete_file(file_store: FileStore, file: Parted) -> None:
    """Remove all objects of the file; those that are gone are no error."""
    for key, _, _ in reversed(list(_objects(file))):
        await file_store.delete(key)


def _objects(file: Parted) -> Iterator[tuple[str, int, int]]:
    """Key, first byte and size of each object."""
    start = 0
    for number, size_bytes in enumerate(file.part_bytes or [file.size_bytes], start=1):
        yield part_key(file.storage_key, number), start, size_bytes
        start += size_bytes
