"""Where bytes live: one small protocol over local disk, S3 and memory.

Keys are made by the service (a file's id), never by a caller. An object appears whole or not at
all: a `put` that fails or is cancelled leaves nothing under its key.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

CHUNK_BYTES = 256 * 1024
"""How much a stream yields at once, at most."""

_KEY = re.compile(r"[a-z0-9][a-z0-9_-]{0,127}")


@dataclass(frozen=True)
class StoredObject:
    """What was stored.

    Attributes:
        size_bytes: Exact number of bytes.
        sha256: Lower-case hex digest of them.
    """

    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class ByteRange:
    """A non-empty range of an object: `length` bytes from `offset`."""

    offset: int
    length: int


class FileStore(Protocol):
    """A flat store of immutable objects.

    Readers raise `StoredObjectMissing` for an unknown key, and for a range that does not lie
    wholly inside the object; writers raise `StorageFull` when there is no room. Both raise
    `StorageUnavailable` when the store cannot be used at all.
    """

    async def put(self, key: str, chunks: AsyncIterator[bytes]) -> StoredObject:
        """Store all chunks under `key`, durably and atomically; replaces an older object.

        Memory use does not grow with the object. If `chunks` raises or the call is cancelled,
        the exception leaves unchanged and the key is as it was before.
        """
        ...

    async def read_range(self, key: str, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`."""
        ...

    async def read_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Many ranges of one object at the price of about one, in the order asked."""
        ...

    def stream(
        self, key: str, *, offset: int = 0, length: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The bytes from `offset`, to the end or `length` of them, in chunks of any size.

        Close the iterator (`contextlib.aclosing`) if it is not read to its end.
        """
        ...

    async def size(self, key: str) -> int:
        """Number of bytes stored under `key`."""
        ...

    async def delete(self, key: str) -> None:
        """Remove the object; deleting an unknown key is no error."""
        ...

    async def discard_interrupted(self, *, older_than_s: float) -> int:
        """Remove what uploads cut off by a crash left behind; returns how many there were."""
        ...

    async def close(self) -> None:
        """Let go of connections; idempotent."""
        ...


def check_key(key: str) -> str:
    """The key itself, if it is one that every implementation can hold.

    Raises:
        ValueError: Anything that could leave the store's root or collide by letter case.
    """
    if not _KEY.fullmatch(key):
        raise ValueError(f"not a storage key: {key!r}")
    return key
