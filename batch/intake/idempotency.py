"""Creations that may be repeated: the same `Idempotency-Key` makes one object (row T-30).

The key is taken in the transaction that makes the object, so there is never one without the other;
a creation that is refused leaves the key unused.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import orjson
from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_errors import IdempotencyKeyReused
from api.batch_shapes import CreateBatch
from api.errors import InvalidRequest
from batch.intake import create, upload
from batch.intake.upload import Upload
from batch.removal import Budget, forget
from store.models import Batch, File
from store.repositories import batch as batches
from store.repositories import file as files
from store.repositories import idempotency
from store.repositories import receipt as receipts
from store.repositories.idempotency import KeyOwner
from store.session import Database

MAX_KEY_CHARS: Final = 255


def check_key(key: str | None) -> str | None:
    """The header's value, if there is one.

    Raises:
        InvalidRequest: It is not 1 to 255 visible ASCII characters.
    """
    if key is not None and not (
        1 <= len(key) <= MAX_KEY_CHARS and key.isascii() and key.isprintable()
    ):
        raise InvalidRequest(
            f"The Idempotency-Key must have 1 to {MAX_KEY_CHARS} visible ASCII characters."
        )
    return key


async def create_batch(
    session: AsyncSession,
    project_id: str,
    request: CreateBatch,
    *,
    key_id: str | None,
    key: str | None,
    received: Upload | None = None,
) -> tuple[Batch, bool]:
    """A new batch, or the one made under this key before; whether it is new.

    Args:
        session: An open transaction.
        project_id: Whose it is.
        request: The body; without its requests where they are stored.
        key_id: Who asks.
        key: The key, if there is one.
        received: Its requests, stored as a file; it gets its row with the batch.

    Raises:
        IdempotencyKeyReused: The key was used for another request.
        InvalidRequest: As `batch.create.create`.
    """
    if key is None:
        return await _create(session, project_id, request, received, key_id), True
    owner = KeyOwner(project_id, "batch", key)
    fingerprint = _fingerprint(_asked(request, received))
    earlier = await idempotency.take(session, owner, fingerprint)
    if earlier is not None:
        if earlier.fingerprint != fingerprint:
            raise IdempotencyKeyReused
        batch = await batches.get(session, project_id, earlier.object_id)
        if batch is not None:
            return batch, False
    batch = await _create(session, project_id, request, received, key_id)
    await idempotency.settle(session, owner, batch.id)
    return batch, True


def _asked(request: CreateBatch, received: Upload | None) -> dict[str, Any]:
    """What the key stands for; of what the version before did not know only what is there."""
    asked = request.model_dump(exclude={"requests"})
    if asked["coserve"] is not None and asked["coserve"]["reuse"] is None:
        del asked["coserve"]["reuse"]
    return asked if received is None else asked | {"requests": received.stored.sha256}


async def _create(
    session: AsyncSession,
    project_id: str,
    request: CreateBatch,
    received: Upload | None,
    key_id: str | None,
) -> Batch:
    if received is not None:
        file = await upload.record(session, received, project_id)
        request = request.model_copy(update={"input_file_id": file.id})
    return await create.create(session, project_id, request, key_id=key_id)


async def record_file(
    session: AsyncSession, received: Upload, project_id: str, *, key: str | None
) -> File:
    """The row of a stored upload, or the file made under this key before.

    An earlier file that was deleted since is made anew. Where the result is another file than the
    upload, the caller removes the upload's bytes.

    Raises:
        IdempotencyKeyReused: The key was used for another upload.
    """
    if key is None:
        return await upload.record(session, received, project_id)
    owner = KeyOwner(project_id, "file", key)
    fingerprint = _fingerprint(
        [received.filename, received.purpose, received.stored.sha256, received.expires_after_s]
    )
    earlier = await idempotency.take(session, owner, fingerprint)
    if earlier is not None:
        if earlier.fingerprint != fingerprint:
            raise IdempotencyKeyReused
        file = await files.get(session, project_id, earlier.object_id)
        if file is not None:
            return file
    file = await upload.record(session, received, project_id)
    await idempotency.settle(session, owner, file.id)
    return file


async def collect_keys(database: Database, budget: Budget | None = None) -> int:
    """Forget keys that are older than a day; how many."""
    return await forget(database, idempotency.collect, budget)


async def collect_receipts(database: Database, budget: Budget | None = None) -> int:
    """Forget receipts of writers long gone; how many."""
    return await forget(database, receipts.collect, budget)


def _fingerprint(request: Any) -> str:
    return hashlib.sha256(orjson.dumps(request, option=orjson.OPT_SORT_KEYS)).hexdigest()
