"""How many pages the interconnect moves beside a step without delaying it.

ConServe v1 section 4.4: copies per iteration are capped by what fits its slack. The bandwidth is
a running mean of measured copies; a share of it is left for everything else on the bus.
"""

from __future__ import annotations


class TransferBudget:
    """Copy bandwidth as measured, and the pages it allows per step.

    Args:
        page_bytes: Bytes of one host page over all layers, K and V.
        bytes_per_s: Bandwidth assumed until copies have been measured.
        share: Part of a step's time that copies may fill.
        weight: Weight of the newest measurement.
    """

    def __init__(
        self, page_bytes: int, bytes_per_s: float, share: float = 0.5, weight: float = 0.1
    ) -> None:
        """Refuse sizes and rates that are not positive.

        Raises:
            ValueError: Naming the wrong value.
        """
        if page_bytes <= 0 or bytes_per_s <= 0.0:
            raise ValueError(f"page of {page_bytes} bytes at {bytes_per_s} bytes per second")
        self._page_bytes = page_bytes
        self._share = share
        self._weight = weight
        self.bytes_per_s = bytes_per_s

    def measured(self, num_pages: int, duration_s: float) -> None:
        """Take in one finished copy."""
        if num_pages <= 0 or duration_s <= 0.0:
            return
        rate = num_pages * self._page_bytes / duration_s
        self.bytes_per_s += self._weight * (rate - self.bytes_per_s)

    def pages_beside(self, step_s: float) -> int:
        """Pages that fit beside a step of ``step_s`` seconds; at least one, so that work moves."""
        return max(1, int(self._share * step_s * self.bytes_per_s / self._page_bytes))
