"""A batch whose requests come with its creation: they become its input file. Ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from api.errors import InvalidRequest
from api.json_output import dump
from batch.files import FileStore
from batch.intake.arrivals import Arrivals, discard
from batch.intake.upload import BATCH_FILE_EXPIRY_S, Upload
from store.types import new_id

MAX_REQUESTS: Final = 5_000
FILENAME: Final = "requests.jsonl"

_AT_ONCE: Final = 64
"""Lines that are made without a pause, which others' streams would wait for."""


async def store(
    requests: Sequence[Any], endpoint: str, file_store: FileStore, known: Arrivals
) -> Upload:
    """Store requests as the lines of a file, which has no row yet.

    What a request leaves out is filled in: `method`, `url`, and its place from 0 as `custom_id`.

    Raises:
        InvalidRequest: There are none or too many, or one is no object; `param` names it.
        StorageFull: No room.
    """
    if not 1 <= len(requests) <= MAX_REQUESTS:
        raise InvalidRequest(
            f"There may be 1 to {MAX_REQUESTS:,} requests; more go into a file.", param="requests"
        )
    for place, one in enumerate(requests):
        if not isinstance(one, dict):
            raise InvalidRequest("A request must be an object.", param=f"requests[{place}]")
    file_id = new_id("file-")
    await known.announce(file_id)
    try:
        stored = await file_store.put(file_id, _lines(requests, endpoint))
    except BaseException:
        await discard(file_store, known, file_id)
        raise
    return Upload(file_id, FILENAME, "batch", stored, BATCH_FILE_EXPIRY_S)


async def _lines(requests: Sequence[dict[str, Any]], endpoint: str) -> AsyncIterator[bytes]:
    for begin in range(0, len(requests), _AT_ONCE):
        yield b"".join(
            dump({"custom_id": str(place), "method": "POST", "url": endpoint, **one}) + b"\n"
            for place, one in enumerate(requests[begin : begin + _AT_ONCE], begin)
        )
        await asyncio.sleep(0)
