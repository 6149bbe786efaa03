"""Prompts that begin alike: their first tokens are computed once and held together.

One level is enough for what loads look like: a group is a system prompt or a document, and its
requests share exactly that. A group's prefix goes through three states::

    absent ──a request has computed it──► held by 1, 2, 3 ... requests ──the last one leaves──►
      evictable ▲                                        ▲───────a request
      starts────────────────────────┤ └────────────────────────pages are short, least recently used
      first──────────────────┘
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine_adapter.scheduling.request import Request, SharedPages


@dataclass(slots=True, eq=False)
class Prefix:
    """One group's prefix.

    Attributes:
        node: Number of the group.
        tokens: Length, in whole pages.
        pages: Device pages it takes.
        present: It is on the device.
        holders: Requests that hold a slot and use it.
        waiting: Requests of the group without a slot.
    """

    node: int
    tokens: int
    pages: int
    present: bool = False
    holders: dict[str, Request] = field(default_factory=dict)
    waiting: dict[str, Request] = field(default_factory=dict)


class PrefixCache:
    """Every group's prefix.

    Args:
        page_tokens: Tokens per device page.

    Attributes:
        evictable_pages: Device pages that no request uses.
    """

    def __init__(self, page_tokens: int) -> None:
        self._page_tokens = page_tokens
        self._groups: dict[str, Prefix] = {}
        self._of: dict[str, Prefix] = {}
        self._idle: dict[int, Prefix] = {}  # least recently used first
        self.evictable_pages = 0

    def join(self, request: Request, group: str, prefix_tokens: int) -> None:
        """A new request belongs to a group; its hit is known from then on.

        Raises:
            ValueError: If other requests of the group said another length.
        """
        pages = prefix_tokens // self._page_tokens
        tokens = pages * self._page_tokens
        prefix = self._groups.get(group)
        if prefix is None:
            prefix = self._groups[group] = Prefix(len(self._groups), tokens, pages)
        if prefix.tokens != tokens:
            raise ValueError(f"group {group!r} shares {prefix.tokens} tokens, not {tokens}")
        if not 0 < tokens < request.prompt_tokens:
            return
        self._of[request.rid] = prefix
        self._wait(prefix, request)

    def start(self, request: Request) -> None:
        """The request gets a slot; what it hit is its own now too."""
        prefix = self._of.get(request.rid)
        if prefix is None:
            return
        prefix.waiting.pop(request.rid, None)
        if request.cached_tokens:
            if not prefix.holders:
                del self._idle[prefix.node]
                self.evictable_pages -= prefix.pages
            prefix.holders[request.rid] = request
            request.device_pages = prefix.pages
            self._tell(prefix)

    def computed(self, request: Request) -> None:
        """The request's chunk is done: an absent prefix in it is there for the others."""
        prefix = self._of.get(request.rid)
        if prefix is None or prefix.present or request.computed_tokens < prefix.tokens:
            return
        prefix.present = True
        prefix.holders[request.rid] = request
        self._tell(prefix)
        for other in prefix.waiting.values():
            other.cached_tokens = prefix.tokens

    def leave(self, request: Request) -> int:
        """The request gives up its pages; how many of them stay in the cache."""
        prefix = self._of.get(request.rid)
        if prefix is None or prefix.holders.pop(request.rid, None) is None:
            return 0
        request.shared = ()
        if not prefix.holders:
            self._idle[prefix.node] = prefix
            self.evictable_pages += prefix.pages
        self._tell(prefix)
        return prefix.pages

    def wait_again(self, request: Request) -> None:
        """A retracted request waits: with nothing on the host it hits what is there."""
        prefix = self._of.get(request.rid)
        if prefix is not None and not request.host_tokens:
            self._wait(prefix, request)

    def forget(self, request: Request) -> None:
        prefix = self._of.pop(request.rid, None)
        if prefix is not None:
            prefix.waiting.pop(request.rid, None)

    def evict(self, num_pages: int) -> int:
        """Free at least so many pages if there are as many; returns how many it were."""
        freed = 0
        while freed < num_pages and self._idle:
            prefix = self._idle.pop(next(iter(self._idle)))
            prefix.present = False
            freed += prefix.pages
            for request in prefix.waiting.values():
                request.cached_tokens = 0
        self.evictable_pages -= freed
        return freed

    def _wait(self, prefix: Prefix, request: Request) -> None:
        prefix.waiting[request.rid] = request
        request.cached_tokens = prefix.tokens if prefix.present else 0

    @staticmethod
    def _tell(prefix: Prefix) -> None:
        part = (SharedPages(prefix.node, prefix.pages, len(prefix.holders)),)
        for request in prefix.holders.values():
            request.shared = part
