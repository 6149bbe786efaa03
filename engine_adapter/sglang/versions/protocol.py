"""The functions that every family of releases has.

Requests, schedulers, trees and batches are SGLang's own objects, and `Any` here: their attributes
are what differs. Lengths are tokens. A request's KV is::

    0 ........ prefix_len ........ kv_len = allocated_len
    | matched or computed before  | this round's chunk |
                                  extend_end of the chunk that is being composed
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol


class Seam(Protocol):
    """One family; each of its modules is checked against this."""

    @property
    def LAYER_ARGUMENTS(self) -> tuple[str, ...]:  # noqa: N802 - a constant of the module
        """What a decoder layer is called with first, for rows to be cut out of it."""
        ...

    # --- the engine as it was started

    def rank(self, scheduler: Any) -> int:
        """Of this scheduler in its tensor-parallel group."""
        ...

    def num_ranks(self, scheduler: Any) -> int:
        """Ranks of its tensor-parallel group."""
        ...

    def resolved(self, server_args: Any) -> Any:
        """The arguments as the engine runs with them, defaults filled in."""
        ...

    def sampling_backend(self) -> str:
        """What this process samples with."""
        ...

    def is_deterministic(self) -> bool:
        """Whether all of this process' sampling is the same in any batch."""
        ...

    def choose_tree(self) -> None:
        """Before the scheduler is built: take the plain prefix tree if nobody chose another."""
        ...

    def hand_over_input(self, scheduler: Any, stand_in: Any) -> None:
        """Let the scheduler read its requests from ``stand_in``; its channels are open."""
        ...

    def copy_stream(self, scheduler: Any) -> Any:
        """Where sampled tokens go to the host, on CUDA."""
        ...

    def abort_timed_out(self, scheduler: Any, view: Any) -> None:
        """End requests that waited or ran too long, if SGLang does not do so by itself.

        Args:
            scheduler: SGLang's, with our batch choice in the place of its own.
            view: Every request that holds a slot, in the shape of a running batch.
        """
        ...

    # --- a request's place

    def slot(self, req: Any) -> int | None:
        """Its row in the table of KV slots; None without one."""
        ...

    def holds_kv(self, req: Any) -> bool:
        """Whether it has KV on the device."""
        ...

    def kv_len(self, req: Any) -> int:
        """Tokens whose KV is written, or is being written by launched steps."""
        ...

    def kv_lens(self, reqs: Sequence[Any]) -> list[int]:
        """The same of many."""
        ...

    def allocated_len(self, req: Any) -> int:
        """Tokens it has KV slots for."""
        ...

    def set_kv_len(self, req: Any, length: int) -> None:
        """Written and allocated up to there."""
        ...

    def refresh_fill_ids(self, req: Any) -> None:
        """Append what it has said to the tokens that a prefill would compute."""
        ...

    def prefix_len(self, req: Any) -> int:
        """Where its next chunk begins."""
        ...

    def extend_end(self, req: Any) -> int:
        """Where its last chunk ends."""
        ...

    def set_extend(self, req: Any, start: int, end: int) -> None:
        """Compute these tokens of it in the step that is composed."""
        ...

    def prefix_in_table(self, scheduler: Any, req: Any, length: int) -> None:
        """Everything up to ``length`` is in its row: the next chunk goes on from there."""
        ...

    # --- the prefix tree, and what a request locks of it

    def lock(self, tree: Any, req: Any) -> None:
        """Keep the prefix that was just matched for the request."""
        ...

    def hit_len(self, tree: Any, key: Any) -> int:
        """Tokens of ``key`` whose KV the tree has on the device."""
        ...

    def held_slots(self, tree: Any, key: Any) -> Any:
        """Their KV slots, a tensor; for tests."""
        ...

    def start_on_prefix(self, scheduler: Any, req: Any, key: Any) -> int:
        """Give a request a slot and what the tree has of ``key``, locked; returns its length.

        Raises:
            RuntimeError: There is no request slot.
        """
        ...

    def undo_start(self, scheduler: Any, req: Any) -> None:
        """Unlock the prefix of a request that a stopped step started; take its slot back.

        Its own KV slots are given back already; it may have come no further than the lock.
        """
        ...

    def release(self, req: Any, tree: Any) -> None:
        """Give slot and pages of a request that is over back; none of it enters the tree."""
        ...

    def gathers_frees(self, allocator: Any) -> bool:
        """Whether freed KV slots are gathered, for a block of somebody's, and free at its end."""
        ...

    def retract(self, scheduler: Any, req: Any) -> None:
        """Give slot and pages of a request that goes on later back."""
        ...

    # --- requests of the profiler: KV slots without content

    def make_up_prefix(self, scheduler: Any, req: Any, length: int) -> None:
        """A context of so many tokens for a prompt that follows it."""
        ...

    def hold_made_up(self, scheduler: Any, req: Any) -> None:
        """Let a request with a made-up context look like one that was prefilled."""
        ...

    def drop_made_up(self, scheduler: Any, req: Any) -> None:
        """Give everything of it back."""
        ...

    # --- a pass

    def cut_hidden(
        self,
        forward_batch: Any,
        hidden: Any,
        rest: tuple[Any, ...],
        tokens: Any,
        cut: Callable[[Any, Any], Any],
    ) -> tuple[Any, ...]:
        """Hidden states and residual stream of some tokens, between two layers.

        Args:
            forward_batch: May hold the residual stream.
            hidden: Hidden states; a sum over the ranks may be owed, and all ranks are here.
            rest: What a layer takes behind the batch.
            tokens: Indices of the tokens that stay, on the device.
            cut: Takes these tokens out of a tensor of hidden states.

        Returns:
            Hidden states, and the rest, of these tokens.
        """
        ...

    def token_ids(self, sampled: Any) -> Any:
        """The token ids in what the sampler gives, a tensor that may be written to."""
        ...
