"""Rows that wait for their next token, with what every step asks of all of them.

A full step holds hundreds of decoding requests, and planning, pricing and checking it all need the
same few numbers of each. They are read once, when the snapshot is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul, sub

from engine_adapter.core.request import RequestClass, RequestRow


class Column:
    """One number per row, and what those in front add up to.

    Attributes:
        numbers: In row order.
        total: Their sum.
    """

    __slots__ = ("_sums", "numbers", "total")

    def __init__(self, numbers: Sequence[int]) -> None:
        """Add the numbers up."""
        self.numbers = numbers
        self.total = sum(numbers)
        self._sums: list[int] | None = None

    @property
    def sums(self) -> list[int]:
        """``sums[n]`` is what the first ``n`` add up to; made when first asked for."""
        if self._sums is None:
            self._sums = [0, *accumulate(self.numbers)]
        return self._sums

    def front(self, num_rows: int) -> int:
        """What the first ``num_rows`` add up to."""
        return self.total if num_rows == len(self.numbers) else self.sums[num_rows]


class ReadyRows:
    """Decoding requests of one side, online or not, in the order a step takes them.

    Invariant: true of the rows from the snapshot until its plan is applied, since only a port
    writes rows, and only then.

    Args:
        rows: The rows.
        page_tokens: Tokens per device page.
        before: Ready rows of an earlier snapshot; what never changes is taken from there if the
            rows are the same.

    Attributes:
        rows: The rows.
        rids: Their ids.
        can_mix: Whether all of them may share a step with prefill chunks.
        is_online: Their side; false if there are none.
        lengths: Tokens of each row with the one it computes next.
        squares: The squares of the lengths.
        pages: New device pages each takes; a row that holds too many gives none back.
    """

    __slots__ = ("can_mix", "is_online", "lengths", "pages", "rids", "rows", "squares")

    rids: tuple[str, ...]
    can_mix: bool

    def __init__(
        self, rows: list[RequestRow], page_tokens: int, before: ReadyRows | None = None
    ) -> None:
        """Read the rows."""
        self.rows = rows
        if before is not None and before.rows == rows:
            self.rids, self.can_mix = before.rids, before.can_mix
        else:
            self.rids = tuple([row.rid for row in rows])
            self.can_mix = all(row.can_mix for row in rows)
        self.is_online = bool(rows) and rows[0].request_class is RequestClass.ONLINE
        lengths = [row.computed_tokens + 1 for row in rows]
        held = [row.device_pages for row in rows]
        # A page of one token, SGLang's usual size, spares hundreds of divisions.
        whole = lengths if page_tokens == 1 else [-(-num // page_tokens) for num in lengths]
        pages = list(map(sub, whole, held))
        if pages and min(pages) < 0:
            pages = [max(0, num) for num in pages]
        self.lengths = Column(lengths)
        self.squares = Column(list(map(mul, lengths, lengths)))
        self.pages = Column(pages)

    def __len__(self) -> int:
        return len(self.rows)
