"""A form becomes a stored file (rows F-01 to F-13)."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest

from api.batch_errors import FileTooLarge, InvalidUpload, StorageFull
from api.errors import InvalidRequest
from batch.files import StoredObject
from batch.files.memory import MemoryFileStore
from batch.intake.upload import MAX_BATCH_FILE_BYTES, MAX_OTHER_FILE_BYTES, Upload, receive
from tests.fakes.seams import MemoryArrivals

ANCHOR = "expires_after[anchor]"
SECONDS = "expires_after[seconds]"


@dataclass
class Part:
    """A part whose content is made while it is read; counts what was read of it."""

    name: str
    value: str | Callable[[], AsyncIterator[bytes]] = ""
    filename: str | None = None

    async def chunks(self) -> AsyncIterator[bytes]:
        if isinstance(self.value, str):
            yield self.value.encode()
        else:
            async for chunk in self.value():
                yield chunk

    async def text(self) -> str:
        assert isinstance(self.value, str)
        return self.value


async def send(*parts: Part, store: MemoryFileStore | None = None) -> Upload:
    async def arriving() -> AsyncIterator[Part]:
        for part in parts:
            yield part

    known = MemoryArrivals()
    try:
        upload = await receive(arriving(), store or MemoryFileStore(), known)
    except Exception:
        assert not known.keys, "what was refused is forgotten"
        raise
    assert known.keys == {upload.file_id}, "it is announced until it is listed"
    return upload


FILE = Part("file", "{}\n", "in.jsonl")
PURPOSE = Part("purpose", "batch")


@pytest.mark.parametrize("parts", [(FILE, PURPOSE), (PURPOSE, FILE)])
async def test_the_fields_may_come_in_any_order(parts: tuple[Part, ...]) -> None:
    store = MemoryFileStore()
    upload = await send(*parts, store=store)
    assert upload.file_id.startswith("file-")
    assert store.keys() == [upload.file_id]
    assert (upload.filename, upload.purpose) == ("in.jsonl", "batch")
    assert upload.stored.size_bytes == 3
    assert upload.stored.sha256 == hashlib.sha256(b"{}\n").hexdigest()
    assert upload.expires_after_s == 30 * 86400


async def test_other_purposes_do_not_expire_unless_they_say_so() -> None:
    assert (await send(FILE, Part("purpose", "user_data"))).expires_after_s is None
    upload = await send(
        FILE, Part("purpose", "evals"), Part(ANCHOR, "created_at"), Part(SECONDS, "3600")
    )
    assert upload.expires_after_s == 3600


async def test_a_nameless_file_gets_a_name() -> None:
    upload = await send(Part("file", "x"), PURPOSE)
    assert upload.filename == "upload"


async def test_unknown_fields_are_refused() -> None:
    with pytest.raises(InvalidRequest) as refused:
        await send(Part("file", "x"), PURPOSE, Part("extra", "x"))
    assert (refused.value.param, refused.value.code) == ("extra", "unknown_parameter")


@pytest.mark.parametrize(
    ("parts", "param"),
    [
        ([PURPOSE], "file"),
        ([], "file"),
        ([FILE], "purpose"),
        ([FILE, Part("purpose", "")], "purpose"),
        ([FILE, Part("purpose", "batch_output")], "purpose"),
        ([Part("purpose", "other"), FILE], "purpose"),
        ([FILE, FILE, PURPOSE], "file"),
        ([FILE, PURPOSE, PURPOSE], "purpose"),
        ([FILE, PURPOSE, Part(ANCHOR, "created_at")], SECONDS),
        ([FILE, PURPOSE, Part(SECONDS, "3600")], ANCHOR),
        ([FILE, PURPOSE, Part(ANCHOR, "deleted_at"), Part(SECONDS, "3600")], ANCHOR),
        ([FILE, PURPOSE, Part(ANCHOR, "created_at"), Part(SECONDS, "3599")], SECONDS),
        ([FILE, PURPOSE, Part(ANCHOR, "created_at"), Part(SECONDS, "2592001")], SECONDS),
        ([FILE, PURPOSE, Part(ANCHOR, "created_at"), Part(SECONDS, "-1")], SECONDS),
        ([FILE, PURPOSE, Part(ANCHOR, "created_at"), Part(SECONDS, "²")], SECONDS),
        ([FILE, PURPOSE, Part(ANCHOR, "created_at"), Part(SECONDS, "9" * 5000)], SECONDS),
    ],
)
async def test_a_refused_form_keeps_nothing(parts: list[Part], param: str) -> None:
    store = MemoryFileStore()
    with pytest.raises(InvalidUpload) as refused:
        await send(*parts, store=store)
    assert refused.value.param == param
    assert store.keys() == []


class Flood:
    """An endless file that counts how much of it was read."""

    def __init__(self, chunk_bytes: int) -> None:
        self._chunk = bytes(chunk_bytes)
        self.num_bytes = 0

    async def __call__(self) -> AsyncIterator[bytes]:
        while True:
            self.num_bytes += len(self._chunk)
            yield self._chunk


class ForgetfulStore(MemoryFileStore):
    """Keeps only the count, so that a test may send hundreds of megabytes."""

    async def put(self, key: str, chunks: AsyncIterator[bytes]) -> StoredObject:
        size_bytes = 0
        async for chunk in chunks:
            size_bytes += len(chunk)
        await super().put(key, _nothing())
        return StoredObject(size_bytes, "")


async def _nothing() -> AsyncIterator[bytes]:
    for chunk in list[bytes]():
        yield chunk


@pytest.mark.parametrize(
    ("before", "limit_bytes"),
    [
        ([PURPOSE], MAX_BATCH_FILE_BYTES),
        ([Part("purpose", "user_data")], MAX_OTHER_FILE_BYTES),
        ([], MAX_OTHER_FILE_BYTES),
    ],
)
@pytest.mark.contract("F-09", "F-10")
async def test_reading_stops_at_the_limit(before: list[Part], limit_bytes: int) -> None:
    flood = Flood(4 * 1024 * 1024)
    store = ForgetfulStore()
    with pytest.raises(FileTooLarge):
        await send(*before, Part("file", flood), store=store)
    assert limit_bytes < flood.num_bytes <= limit_bytes + 4 * 1024 * 1024
    assert store.keys() == []


async def test_a_purpose_that_comes_after_too_large_a_file() -> None:
    async def just_over() -> AsyncIterator[bytes]:
        for _ in range(MAX_BATCH_FILE_BYTES // (1024 * 1024)):
            yield bytes(1024 * 1024)
        yield b"x"

    store = ForgetfulStore()
    with pytest.raises(FileTooLarge):
        await send(Part("file", just_over), PURPOSE, store=store)
    assert store.keys() == []
    upload = await send(Part("file", just_over), Part("purpose", "evals"), store=store)
    assert upload.stored.size_bytes == MAX_BATCH_FILE_BYTES + 1


async def test_a_full_store() -> None:
    with pytest.raises(StorageFull):
        await send(PURPOSE, FILE, store=MemoryFileStore(capacity_bytes=2))
