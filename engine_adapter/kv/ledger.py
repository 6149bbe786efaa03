"""The host page tables: per request, which host page holds which logical page.

A logical page is the n-th stretch of ``host_page_tokens`` tokens of a request. The table survives
a retract, when the device pages are gone. For one request, left to right::

    0 ........ committed ........ reserved ........
    |  on the host, usable |  being copied  |  device only

A page is committed once every rank has reported its copy complete. Pages are reserved and
committed in order, so the committed part is always a prefix: restoring it is restoring a prefix
of the KV.
"""

from __future__ import annotations

from dataclasses import dataclass, field


class HostPoolFull(Exception):
    """The host pool has fewer free pages than asked for."""


class LedgerError(ValueError):
    """Pages were committed, dropped or read out of order."""


@dataclass(slots=True)
class _Table:
    pages: list[int] = field(default_factory=list)
    committed: int = 0
    reports: dict[int, int] = field(default_factory=dict)


class HostLedger:
    """Host page tables over one bounded pool.

    Args:
        num_pages: Size of the pool.
        num_ranks: Ranks that must report a copy before its pages count as committed.
    """

    def __init__(self, num_pages: int, num_ranks: int = 1) -> None:
        """Start with an empty pool."""
        self.num_pages = num_pages
        self._num_ranks = num_ranks
        # Low numbers are handed out first, so a lightly used pool touches little memory.
        self._free = list(range(num_pages - 1, -1, -1))
        self._tables: dict[str, _Table] = {}

    @property
    def num_free(self) -> int:
        """Host pages nobody holds."""
        return len(self._free)

    def reserve(self, rid: str, num_pages: int) -> list[int]:
        """Claim host pages for the next logical pages of a request, before copying into them.

        Raises:
            HostPoolFull: If the pool has fewer; nothing is claimed then.
        """
        if num_pages > len(self._free):
            raise HostPoolFull(f"{num_pages} host pages wanted, {len(self._free)} free")
        taken = [self._free.pop() for _ in range(num_pages)]
        self._tables.setdefault(rid, _Table()).pages.extend(taken)
        return taken

    def report(self, rid: str, up_to_page: int, rank: int = 0) -> int:
        """Rank ``rank`` has copied all logical pages below ``up_to_page``.

        Returns:
            The number of committed pages.

        Raises:
            LedgerError: If those pages were never reserved.
        """
        table = self._tables.get(rid)
        if table is None:
            return 0  # the request ended while its copy was under way
        if up_to_page > len(table.pages):
            raise LedgerError(f"{rid}: page {up_to_page} reported, {len(table.pages)} reserved")
        table.reports[rank] = max(table.reports.get(rank, 0), up_to_page)
        if len(table.reports) == self._num_ranks:
            table.committed = max(table.committed, min(table.reports.values()))
        return table.committed

    def committed(self, rid: str) -> int:
        """Logical pages of the request that can be restored."""
        table = self._tables.get(rid)
        return table.committed if table is not None else 0

    def reserved(self, rid: str) -> int:
        """Logical pages with a host page, committed or not."""
        table = self._tables.get(rid)
        return len(table.pages) if table is not None else 0

    def pages(self, rid: str, from_page: int, num_pages: int) -> list[int]:
        """Host pages of logical pages ``[from_page, from_page + num_pages)``.

        Raises:
            LedgerError: If one of them is not committed.
        """
        table = self._tables.get(rid)
        end = from_page + num_pages
        if table is None or end > table.committed:
            raise LedgerError(f"{rid}: page {end} wanted, {self.committed(rid)} committed")
        return table.pages[from_page:end]

    def truncate(self, rid: str, num_pages: int) -> None:
        """Keep only the first ``num_pages`` logical pages, for example after a stopped step."""
        table = self._tables.get(rid)
        if table is None:
            return
        self._free.extend(reversed(table.pages[num_pages:]))
        del table.pages[num_pages:]
        table.committed = min(table.committed, num_pages)
        table.reports = {rank: min(n, num_pages) for rank, n in table.reports.items()}

    def drop(self, rid: str) -> None:
        """Give all host pages of a request back."""
        self.truncate(rid, 0)
        self._tables.pop(rid, None)

    def check(self) -> None:
        """Verify that every host page is free or held exactly once.

        Raises:
            LedgerError: If a page is lost or held twice.
        """
        held = [page for table in self._tables.values() for page in table.pages]
        everything = sorted(held + self._free)
        if everything != list(range(self.num_pages)):
            raise LedgerError(
                f"{len(held)} held + {len(self._free)} free pages do not make {self.num_pages}"
            )
