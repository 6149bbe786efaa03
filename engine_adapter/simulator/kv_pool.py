"""Device and host page accounting of the engine in memory."""

from __future__ import annotations

from engine_adapter.core.request import RequestRow, pages_for


class KvPool:
    """Counts pages; raises as soon as a page would be given out twice.

    Args:
        total_pages: Device pages.
        page_tokens: Tokens per device page.
        host_total_pages: Host pages.
        host_page_tokens: Tokens per host page.
    """

    def __init__(
        self, total_pages: int, page_tokens: int, host_total_pages: int, host_page_tokens: int
    ) -> None:
        """Start with everything free."""
        self.total_pages = total_pages
        self.page_tokens = page_tokens
        self.host_total_pages = host_total_pages
        self.host_page_tokens = host_page_tokens
        self.free_pages = total_pages
        self.host_free_pages = host_total_pages

    def resize(self, row: RequestRow, num_tokens: int) -> None:
        """Make the row's device pages just enough for ``num_tokens`` tokens.

        Raises:
            MemoryError: If the pool has no such page left.
        """
        wanted = pages_for(num_tokens, self.page_tokens)
        self.free_pages -= wanted - row.device_pages
        row.device_pages = wanted
        if not 0 <= self.free_pages <= self.total_pages:
            raise MemoryError(f"{self.free_pages} of {self.total_pages} device pages free")

    def release_device(self, row: RequestRow) -> None:
        """Give the row's device pages back."""
        self.resize(row, 0)

    def take_host(self, num_pages: int) -> None:
        """Claim host pages.

        Raises:
            MemoryError: If the host pool has no such page left.
        """
        self.host_free_pages -= num_pages
        if not 0 <= self.host_free_pages <= self.host_total_pages:
            raise MemoryError(f"{self.host_free_pages} of {self.host_total_pages} host pages free")

    def release_host(self, row: RequestRow) -> None:
        """Give the row's host pages back."""
        self.take_host(-(row.host_pages + row.host_pages_pending))
        row.host_pages = row.host_pages_pending = row.host_tokens = 0
