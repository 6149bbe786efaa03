"""What one step may still promise to its rows: counted down as the step is filled."""

from __future__ import annotations

from engine_adapter.core.release import Release
from engine_adapter.core.request import RequestRow
from engine_adapter.core.snapshot import Snapshot


class Promises:
    """Resources of a snapshot that no row of the step has yet.

    Attributes:
        pages_left: Device pages still to be promised.
        slots_left: Free slots still to be promised, to anyone.
        offline_slots_left: Slots rows that are not online may still take.
        chunk_left: Prompt tokens the executor still takes.
        rows_left: Rows the executor still takes.
        copy_left: Host pages the interconnect still moves.
        host_left: Host pages still to be promised.
        release: What the rows retracted in this step give up.
        coming: The same with the rows that rest in this step and give theirs up in the next.
        coming_pages: Device pages that those make available.
        coming_slots: Slots they give up.
        owed_pages: Device pages that online rows need in the next step.
        owed_slots: Slots they need.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """Everything the snapshot has."""
        resources, limits = snapshot.resources, snapshot.limits
        self.pages_left = resources.available_pages
        self.slots_left = resources.free_slots
        held = len(snapshot.offline_running)
        self.offline_slots_left = resources.total_slots - resources.reserved_slots - held
        self.chunk_left = limits.max_chunk_tokens
        self.rows_left = limits.max_batch_rows
        self.copy_left = resources.copy_pages_per_step
        self.host_left = resources.host_free_pages
        self.release, self.coming = Release(), Release()
        self.coming_pages = self.coming_slots = 0
        self.owed_pages = self.owed_slots = 0

    @property
    def has_offline_slot(self) -> bool:
        """Whether a waiting row that is not online could begin."""
        return self.slots_left > 0 and self.offline_slots_left > 0

    def has_slot_for(self, row: RequestRow) -> bool:
        """Whether this waiting row could begin."""
        return self.slots_left > 0 if row.is_online else self.has_offline_slot

    def owe(self, num_pages: int, num_slots: int) -> None:
        """Online rows get these in the next step, from what is left and what comes."""
        self.owed_pages += num_pages
        self.owed_slots += num_slots

    def hold_back(self) -> None:
        """Keep what is owed of the pages that are left: nothing offline may take them now.

        Otherwise the next step finds less than this one counted on, rows rest once more, and so on.
        """
        self.pages_left -= min(self.pages_left, self.owed_pages)

    def take_slot(self, row: RequestRow) -> None:
        """Promise a slot to the row."""
        self.slots_left -= 1
        if not row.is_online:
            self.offline_slots_left -= 1
