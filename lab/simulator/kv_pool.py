"""Device and host page accounting of the engine in memory."""

from __future__ import annotations

from engine_adapter.scheduling.host_ledger import HostLedger
from engine_adapter.scheduling.request import Request, pages_for
from lab.simulator.prefixes import PrefixCache


class KvPool:
    """Counts device pages and keeps the host ledger; raises before a page is given out twice.

    Args:
        total_pages: Device pages.
        page_tokens: Tokens per device page.
        host_total_pages: Host pages.
        host_page_tokens: Tokens per host page.
    """

    def __init__(
        self, total_pages: int, page_tokens: int, host_total_pages: int, host_page_tokens: int
    ) -> None:
        self.total_pages = total_pages
        self.page_tokens = page_tokens
        self.host_total_pages = host_total_pages
        self.host_page_tokens = host_page_tokens
        self.free_pages = total_pages
        self.host = HostLedger(host_total_pages)
        self.prefixes = PrefixCache(page_tokens)

    @property
    def host_free_pages(self) -> int:
        """Host pages nobody holds."""
        return self.host.num_free

    def resize(self, request: Request, num_tokens: int) -> None:
        """Make the request's device pages just enough for ``num_tokens`` tokens.

        Prefixes that nobody uses give way.

        Raises:
            MemoryError: If the pool has no such page left.
        """
        wanted = pages_for(num_tokens, self.page_tokens)
        self.claim(wanted - request.device_pages)
        request.device_pages = wanted

    def claim(self, num_pages: int) -> None:
        """Take pages off the free ones, or give some back.

        Raises:
            MemoryError: If the pool has no such page left.
        """
        self.free_pages -= num_pages
        if self.free_pages < 0:
            self.free_pages += self.prefixes.evict(-self.free_pages)
        if not 0 <= self.free_pages <= self.total_pages:
            raise MemoryError(f"{self.free_pages} of {self.total_pages} device pages free")

    def release_device(self, request: Request) -> None:
        """Give the request's device pages back; what it shares stays in the cache."""
        request.device_pages -= self.prefixes.leave(request)
        self.resize(request, 0)

    def take_host(self, request: Request, num_pages: int) -> None:
        """Claim host pages for the request's next logical pages.

        Raises:
            MemoryError: If the host pool has fewer left.
        """
        if len(self.host.extend(request.rid, num_pages)) != num_pages:
            raise MemoryError(f"{num_pages} host pages wanted, {self.host.num_free} free")

    def release_host(self, request: Request) -> None:
        """Give the request's host pages back."""
        self.host.drop(request.rid)
        request.host_pages = request.host_pages_pending = request.host_tokens = 0
