"""How much of a prompt the prefix tree holds, asked without touching the tree.

SGLang's own match splits nodes and notes accesses, so only the scheduler's thread may call it. The
monitor asks from a thread of its own, while a step runs, to charge an arrival only for what it has
still to compute. The walk here reads and changes nothing. The scheduler may change the tree in
between: an answer is then off by one node, which costs at most one needless or one missing stop.
"""

from __future__ import annotations

from typing import Any


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
