"""A batch that is only checked: every error its validation would find, and nothing is made."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import orjson

import batch
from api.errors import InternalError, Overloaded, RateLimited
from api.numbers import ModelSizes
from service.turns import TooManyWait, Turns

MAX_RUNNING: Final = 1
MAX_WAITING: Final = 8
"""Of one project."""

TIME_LIMIT_S: Final = 120.0

_IMPORT_ROOT: Final = Path(batch.__file__).parents[1]


class DryRuns:
    """The checks of one gateway: one at a time, by turns of the projects whose files wait."""

    def __init__(self) -> None:
        self._turns = Turns(MAX_RUNNING, max_waiting=MAX_WAITING)

    async def check(
        self,
        project_id: str,
        content: AsyncGenerator[bytes],
        endpoint: str,
        served_models: dict[str, bool] | None,
        sizes: dict[str, ModelSizes],
    ) -> dict[str, Any]:
        """Check the content of a file, whether or not it is stored.

        Returns:
            `num_lines`, `num_bytes`, `model` and `faults`, in wire shape.

        Raises:
            StoredObjectMissing: The content of the file is gone.
            RateLimited: As many checks of the project wait as may.
            Overloaded: This one took too long.
        """
        plain = {model: list(size) for model, size in sizes.items()}
        arguments = orjson.dumps([endpoint, served_models, plain]).decode()
        try:
            async with self._turns.place(project_id), asyncio.timeout(TIME_LIMIT_S):
                return await _check(content, arguments)
        except TooManyWait:
            raise RateLimited(
                f"This project has {MAX_WAITING} files that wait to be checked, which is its "
                "limit. Please try again when one has been."
            ) from None
        except TimeoutError:
            raise Overloaded("Checking this file takes too long at the moment.") from None


async def _check(content: AsyncGenerator[bytes], arguments: str) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "batch.intake.check_process",
        arguments,
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        cwd=_IMPORT_ROOT,
    )
    try:
        report = await _feed(process, content)
        if await process.wait() != 0:
            raise InternalError("The file could not be checked.")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    found: dict[str, Any] = orjson.loads(report)
    return found


async def _feed(process: Process, content: AsyncGenerator[bytes]) -> bytes:
    """Give the child the file; its answer, which it gives once it has all of it."""
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the child has no pipes")
    try:
        async with aclosing(content) as chunks:
            async for chunk in chunks:
                process.stdin.write(chunk)
                await process.stdin.drain()
        process.stdin.close()
        return await process.stdout.read()
    except (BrokenPipeError, ConnectionResetError):
        raise InternalError("The file could not be checked.") from None
