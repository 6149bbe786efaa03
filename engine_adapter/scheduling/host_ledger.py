"""The host page tables: per request, which host page holds which logical page.

A logical page is the n-th stretch of ``host_page_tokens`` tokens of a request. The table survives
a retract, when the device pages are gone. Pages are added and given back at the end of a table
only, so what a request has on the host is always a prefix of its KV: restoring it restores a
prefix.

When the pool is full nothing is evicted from it: the request that asks gets nothing and goes on
without a checkpoint. What is on the host belongs to requests that will need it, and one more copy
of another request is worth no more than the one that would be lost.

Every tensor-parallel rank keeps the same ledger: pools have one size, and orders come from one
plan in one order. A page is on every rank before any rank can be told to read it (decision 0025).
"""

from __future__ import annotations


class LedgerError(ValueError):
    """Pages were read or kept that nobody holds."""


class HostLedger:
    """Host page tables over one bounded pool.

    Args:
        num_pages: Size of the pool.
    """

    def __init__(self, num_pages: int) -> None:
        """Start with an empty pool."""
        self.num_pages = num_pages
        # Low numbers are handed out first, so a lightly used pool touches little memory.
        self._free = list(range(num_pages - 1, -1, -1))
        self._tables: dict[str, list[int]] = {}

    @property
    def num_free(self) -> int:
        """Host pages nobody holds."""
        return len(self._free)

    def extend(self, rid: str, num_pages: int) -> list[int]:
        """Claim host pages for the next logical pages of a request; all of them, or none.

        Returns:
            The pages, empty if the pool has fewer than asked for.
        """
        if not 0 < num_pages <= len(self._free):
            return []
        taken = [self._free.pop() for _ in range(num_pages)]
        self._tables.setdefault(rid, []).extend(taken)
        return taken

    def held(self, rid: str) -> int:
        """Logical pages of the request that have a host page, counted from its beginning."""
        return len(self._tables.get(rid, ()))

    def pages(self, rid: str, from_page: int, num_pages: int) -> list[int]:
        """Host pages of logical pages ``[from_page, from_page + num_pages)``.

        Raises:
            LedgerError: If one of them is not held.
        """
        end = from_page + num_pages
        if from_page < 0 or end > self.held(rid):
            raise LedgerError(f"{rid}: page {end} wanted, {self.held(rid)} held")
        return self._tables.get(rid, [])[from_page:end]

    def truncate(self, rid: str, num_pages: int) -> None:
        """Keep only the first ``num_pages`` logical pages, for example when a tail grows again.

        Neighbours given back come out again as neighbours.

        Raises:
            LedgerError: If fewer are held.
        """
        if num_pages > self.held(rid):
            raise LedgerError(f"{rid}: {num_pages} pages to keep, {self.held(rid)} held")
        table = self._tables.get(rid, [])
        self._free.extend(reversed(table[num_pages:]))
        del table[num_pages:]
        if not table:
            self._tables.pop(rid, None)

    def drop(self, rid: str) -> None:
        """Give all host pages of a request back."""
        self.truncate(rid, 0)

    def check(self) -> None:
        """Verify that every host page is free or held exactly once.

        Raises:
            LedgerError: If a page is lost or held twice.
        """
        held = [page for table in self._tables.values() for page in table]
        if sorted(held + self._free) != list(range(self.num_pages)):
            raise LedgerError(
                f"{len(held)} held + {len(self._free)} free pages do not make {self.num_pages}"
            )
