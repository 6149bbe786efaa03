"""The file store's fake: objects in a dictionary, for tests and dry runs."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from api.batch_errors import StorageFull, StoredObjectMissing
from batch.files.base import CHUNK_BYTES, ByteRange, StoredObject, check_key


class MemoryFileStore:
    """Keeps everything in memory; `capacity_bytes` makes it fill up like a disk."""

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self._objects: dict[str, bytes] = {}
        self._capacity_bytes = capacity_bytes

    def keys(self) -> list[str]:
        """Every stored key, sorted."""
        return sorted(self._objects)

    async def put(self, key: str, chunks: AsyncIterator[bytes]) -> StoredObject:
        check_key(key)
        data = bytearray()
        used_bytes = sum(len(held) for other, held in self._objects.items() if other != key)
        async for chunk in chunks:
            data += chunk
            if self._capacity_bytes is not None and used_bytes + len(data) > self._capacity_bytes:
                raise StorageFull
        self._objects[key] = bytes(data)
        return StoredObject(len(data), hashlib.sha256(data).hexdigest())

    async def read_range(self, key: str, offset: int, length: int) -> bytes:
        return self._slice(key, offset, length)

    async def read_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        return [self._slice(key, one.offset, one.length) for one in ranges]

    async def stream(
        self, key: str, *, offset: int = 0, length: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        size_bytes = await self.size(key)
        data = self._slice(key, offset, size_bytes - offset if length is None else length)
        for start in range(0, len(data), CHUNK_BYTES):
            yield data[start : start + CHUNK_BYTES]

    async def size(self, key: str) -> int:
        try:
            return len(self._objects[check_key(key)])
        except KeyError:
            raise StoredObjectMissing(key) from None

    async def delete(self, key: str) -> None:
        self._objects.pop(check_key(key), None)

    async def discard_interrupted(self, *, older_than_s: float) -> int:
        """See `FileStore.discard_interrupted`: nothing partial is ever kept."""
        return 0

    async def close(self) -> None:
        """Nothing is held open."""

    def _slice(self, key: str, offset: int, length: int) -> bytes:
        data = self._objects.get(check_key(key))
        if data is None or offset < 0 or length < 0 or offset + length > len(data):
            raise StoredObjectMissing(key)
        return data[offset : offset + length]
