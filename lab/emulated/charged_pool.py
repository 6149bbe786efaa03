"""The host pool of an emulated device: copies take as long as those of the real model's KV."""

from __future__ import annotations

from typing import Any

from lab.emulated.timeline import Timeline


class ChargedPool:
    """A host pool whose copies occupy the device's link; else it is the pool it is given.

    Args:
        pool: The pool, which moves the sixteen numbers of a token.
        timeline: The device.
        page_bytes: KV of a page under the real model, of one GPU.

    Attributes:
        page_bytes: Likewise. Plans bound what a step may copy by it.
    """

    def __init__(self, pool: Any, timeline: Timeline, page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self._pool = pool
        self._timeline = timeline

    def store(self, slots: Any, pages: list[int]) -> None:
        """Copy device KV to host pages; see :meth:`.kv.HostPool.store`."""
        self._timeline.store(len(pages) * self.page_bytes)
        self._pool.store(slots, pages)

    def load(self, slots: Any, pages: list[int], first_token: int = 0) -> None:
        """Copy host pages back to the device; see :meth:`.kv.HostPool.load`."""
        self._timeline.load(len(pages) * self.page_bytes)
        self._pool.load(slots, pages, first_token)

    def __getattr__(self, name: str) -> Any:
        """Everything else is the pool's own."""
        return getattr(self._pool, name)
