"""What is asked of SGLang's prefix tree: how much of a prompt it holds, and who shares it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sglang.srt.mem_cache.radix_cache import RadixKey

from engine_adapter.scheduling.request import SharedPages
from engine_adapter.sglang.live_requests import LiveRequest
from engine_adapter.sglang.versions.installed import seam

if TYPE_CHECKING:
    from sglang.srt.managers.scheduler import Scheduler


class PrefixTree:
    """The tree of one scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        """Ask the tree of this scheduler."""
        self._scheduler = scheduler

    def hit(self, req: Any) -> int:
        """Tokens of a waiting request's prompt that it would not compute."""
        key = _prompt_key(req.origin_input_ids, req.extra_key)
        return seam.hit_len(self._scheduler.tree_cache, key)

    def already_cached(self, arrival: Any) -> int:
        """Tokens of an arrival's prompt that the tree holds; runs on the monitor's thread."""
        ids = arrival.input_ids
        if not ids or arrival.input_embeds is not None:
            return 0
        return cached_tokens(self._scheduler.tree_cache, _prompt_key(ids, arrival.extra_key))

    def note_shared(self, lives: Iterable[LiveRequest]) -> None:
        """Note of each request which pages of its path another one has locked too."""
        for live in lives:
            live.request.shared = self._shared_pages(live.req)

    def _shared_pages(self, req: Any) -> tuple[SharedPages, ...]:
        node, found = req.last_node, []
        root = getattr(self._scheduler.tree_cache, "root_node", None)
        while node is not None and node is not root:
            if node.lock_ref > 1:
                num_pages = len(node.key) // self._scheduler.page_size
                found.append(SharedPages(node.id, num_pages, node.lock_ref))
            node = node.parent
        return tuple(found)


def _prompt_key(ids: Any, extra_key: str | None) -> RadixKey:
    """What is looked up of a prompt: its last token is always computed."""
    return RadixKey(token_ids=ids, extra_key=extra_key, limit=len(ids) - 1)


# --- How much of a prompt the tree holds, asked without touching the tree.
#
# SGLang's own match splits nodes and notes accesses, so only the scheduler's thread may call it.
# The monitor asks from a thread of its own, while a step runs, to charge an arrival only for what
# it has still to compute. The walk here reads and changes nothing. The scheduler may change the
# tree in between: an answer is then off by one node, which costs at most one needless or one
# missing stop.


def cached_tokens(tree: Any, key: Any) -> int:
    """Tokens at the front of ``key`` whose KV the tree holds.

    Args:
        tree: SGLang's ``RadixCache``.
        key: A ``RadixKey``; its limit is kept.
    """
    key = key.page_aligned(tree.page_size)
    node, found = tree.root_node, 0
    while len(key) > 0:
        child = node.children.get(key.child_key(tree.page_size))
        if child is None:
            break
        held = child.key
        matched = held.match(key, page_size=tree.page_size)
        found += matched
        if matched < len(held):
            break
        key = key[matched:]
        node = child
    return found
