"""A file that lies in several objects reads as one, from any byte to any other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.batch_errors import StoredObjectMissing
from batch.files import ByteRange
from batch.files.memory import MemoryFileStore
from batch.files.parts import check_there, delete_file, part_key, stream_file


@dataclass(frozen=True)
class _File:
    storage_key: str
    size_bytes: int
    part_bytes: list[int] | None


async def _stored(parts: list[bytes]) -> tuple[MemoryFileStore, _File]:
    store = MemoryFileStore()
    for number, data in enumerate(parts, start=1):

        async def chunks(data: bytes = data) -> AsyncIterator[bytes]:
            yield data

        await store.put(part_key("file-a", number), chunks())
    sizes = [len(data) for data in parts]
    return store, _File("file-a", sum(sizes), sizes if len(sizes) > 1 else None)


@given(
    parts=st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=5),
    ends=st.tuples(st.integers(0, 45), st.integers(0, 45)),
)
def test_any_range_of_any_parts(parts: list[bytes], ends: tuple[int, int]) -> None:
    whole = b"".join(parts)
    first, last = sorted(min(end, len(whole)) for end in ends)
    wanted = ByteRange(first, last - first)

    async def read() -> bytes:
        store, file = await _stored(parts)
        await check_there(store, file, wanted)
        return b"".join([chunk async for chunk in stream_file(store, file, wanted)])

    assert asyncio.run(read()) == whole[first:last]


@pytest.mark.parametrize("lost", ["file-a", "file-a-3"])
async def test_a_lost_object_is_an_error_before_the_first_byte(lost: str) -> None:
    store, file = await _stored([b"one", b"two", b"three"])
    await store.delete(lost)
    with pytest.raises(StoredObjectMissing):
        await check_there(store, file, ByteRange(0, file.size_bytes))


async def test_all_objects_go_together() -> None:
    store, file = await _stored([b"one", b"two", b"three"])
    await delete_file(store, file)
    assert store.keys() == []
