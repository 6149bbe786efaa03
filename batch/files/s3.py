"""Files in an S3-compatible bucket (or any store obstore knows).

Large objects are multipart uploads, which appear when they are complete. Parts of an upload that
a crash cut off are invisible; a bucket lifecycle rule (abort incomplete multipart uploads after a
day) removes them.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, cast

import obstore
from obstore.exceptions import BaseError, NotFoundError
from obstore.store import from_url

from api.batch_errors import StorageFull, StorageUnavailable, StoredObjectMissing
from batch.files.base import ByteRange, StoredObject, check_key

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

_RETRIES: Final[RetryConfig] = {"max_retries": 5, "retry_timeout": timedelta(seconds=20)}
"""Of one request that got no answer or a 5xx; what is left then is the caller's to repeat."""

SILENCE_S: Final = 20.0
"""A server that says nothing for so long is given up: less than any stage or duty may take. It is
also what the upload of one part may take, so it is not shorter."""

# Of a whole request, its body included, which takes as long as a caller reads.
_NO_LIMIT: Final = timedelta(days=1)

# What servers call it: MinIO, Ceph, and WebDAV's word that others took over.
_NO_ROOM: Final = re.compile("StorageFull|QuotaExceeded|InsufficientStorage|Insufficient Storage")

# Of servers that are there and have more requests than they serve.
_BUSY: Final = re.compile(r"SlowDown|ServiceUnavailable|TooManyRequests|\b(429|503)\b")

logger = logging.getLogger(__name__)

MAX_LOG_CHARS: Final = 300
_CONNECT_S: Final = 5.0
_CLIENT_OPTIONS: Final = (
    "allow_http", "allow_invalid_certificates", "connect_timeout", "http1_only",
    "http2_keep_alive_interval", "http2_keep_alive_timeout", "http2_keep_alive_while_idle",
    "http2_only", "pool_idle_timeout", "pool_max_idle_per_host", "proxy_url",
    "proxy_ca_certificate", "proxy_excludes", "randomize_addresses", "read_timeout",
    "root_certificate", "timeout", "user_agent",
)  # fmt: skip
_PART_BYTES: Final = 5 * 1024 * 1024  # the smallest part S3 takes
_NUM_PARTS_IN_FLIGHT: Final = 2


class ObjectFileStore:
    """Objects under one prefix of a bucket."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    @classmethod
    def from_url(cls, url: str, *, silence_s: float = SILENCE_S) -> ObjectFileStore:
        """`s3://bucket/prefix`; credentials, region and endpoint from the AWS_* environment.

        Its calls run in threads of the library's own, and hold none of ours.
        """
        # Ours would take the place of all that the environment has.
        limits: dict[str, Any] = {
            "connect_timeout": timedelta(seconds=min(silence_s, _CONNECT_S)),
            "read_timeout": timedelta(seconds=silence_s),
            "timeout": _NO_LIMIT,
            **_of_environment(os.environ),
        }
        return cls(
            from_url(url, retry_config=_RETRIES, client_options=cast("ClientConfig", limits))
        )

    async def put(self, key: str, chunks: AsyncIterator[bytes]) -> StoredObject:
        source = _Measured(chunks)
        with _errors_of(key):
            try:
                await obstore.put_async(
                    self._store,
                    check_key(key),
                    source,
                    chunk_size=_PART_BYTES,
                    max_concurrency=_NUM_PARTS_IN_FLIGHT,
                )
            except Exception:
                if source.error is not None:
                    # The store wraps what its source raised; callers must see their own exception.
                    raise source.error from None
                raise
        return StoredObject(source.size_bytes, source.digest.hexdigest())

    async def read_range(self, key: str, offset: int, length: int) -> bytes:
        return (await self.read_ranges(key, [ByteRange(offset, length)]))[0]

    async def read_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        """See `FileStore.read_ranges`; neighbours are fetched by one request."""
        size_bytes = await self.size(key)
        for one in ranges:
            if one.offset < 0 or one.length < 0 or one.offset + one.length > size_bytes:
                raise StoredObjectMissing(key)
        wanted = [one for one in ranges if one.length]
        if not wanted:
            return [b""] * len(ranges)
        with _errors_of(key):
            found = await obstore.get_ranges_async(
                self._store,
                check_key(key),
                starts=[one.offset for one in wanted],
                lengths=[one.length for one in wanted],
            )
        data = iter(found)
        return [bytes(next(data)) if one.length else b"" for one in ranges]

    async def stream(
        self, key: str, *, offset: int = 0, length: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        size_bytes = await self.size(key)
        length = size_bytes - offset if length is None else length
        if offset < 0 or length < 0 or offset + length > size_bytes:
            raise StoredObjectMissing(key)
        if not length:
            return
        with _errors_of(key):
            reply = await obstore.get_async(
                self._store, check_key(key), options={"range": (offset, offset + length)}
            )
            chunks = aiter(reply.stream())
        while True:
            with _errors_of(key):
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            yield bytes(chunk)

    async def size(self, key: str) -> int:
        with _errors_of(key):
            return int((await obstore.head_async(self._store, check_key(key)))["size"])

    async def delete(self, key: str) -> None:
        with suppress(StoredObjectMissing), _errors_of(key):
            await obstore.delete_async(self._store, check_key(key))

    async def discard_interrupted(self, *, older_than_s: float) -> int:
        """See `FileStore.discard_interrupted`: left to the bucket's lifecycle rule."""
        return 0

    async def close(self) -> None:
        """Nothing is held open."""


def _of_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The options of the connection that an operator has set."""
    names = {name: f"AWS_{name.upper()}" for name in _CLIENT_OPTIONS}
    return {name: environ[variable] for name, variable in names.items() if variable in environ}


@contextmanager
def _errors_of(key: str) -> Iterator[None]:
    """The store's errors as ours."""
    try:
        yield
    except (NotFoundError, FileNotFoundError):
        raise StoredObjectMissing(key) from None
    except BaseError as error:
        if _NO_ROOM.search(str(error)):
            raise StorageFull from error
        logger.warning("file store: %s", str(error)[:MAX_LOG_CHARS])
        raise StorageUnavailable(
            "is busy" if _BUSY.search(str(error)) else "cannot be reached"
        ) from error


class _Measured:
    """Counts and digests chunks on their way; keeps the exception their source raised."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self.digest = hashlib.sha256()
        self.size_bytes = 0
        self.error: BaseException | None = None

    def __aiter__(self) -> _Measured:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await anext(self._chunks)
        except StopAsyncIteration:
            raise
        except BaseException as error:
            self.error = error
            raise
        self.digest.update(chunk)
        self.size_bytes += len(chunk)
        return chunk
