"""Python's collector passes over what an engine holds for good.

A full collection looks at every object of a process. SGLang's server has 630,000 of them from its
imports alone: every few minutes of traffic it stood still for 0.4 s, and no stream got a token.
SGLang can take them out of the collector's sight in all of its processes, if it is
asked. It is asked at the first request, which is its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

FIRST_REQUEST: Final = (
    "sglang.srt.managers.tokenizer_manager.TokenizerManager.auto_create_handle_loop"
)


def freezing(create_loop: Callable[..., None], manager: Any, *args: Any, **more: Any) -> None:
    """Around the call of every request that makes the server's loop, if it is not there yet."""
    is_first = manager.event_loop is None
    create_loop(manager, *args, **more)
    if is_first:
        manager.asyncio_tasks.add(manager.event_loop.create_task(manager.freeze_gc()))
