from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from engine_adapter.sglang.plugin import freezing


async def test_the_first_request_alone_freezes() -> None:
    frozen: list[str] = []

    async def freeze_gc() -> None:
        frozen.append("all")

    manager = SimpleNamespace(event_loop=None, asyncio_tasks=set(), freeze_gc=freeze_gc)

    def create_loop(manager: Any) -> None:
        manager.event_loop = asyncio.get_running_loop()

    for _ in range(3):
        freezing(create_loop, manager)
    await asyncio.gather(*manager.asyncio_tasks)
    assert frozen == ["all"]
