"""How many device pages rows make available when they are retracted together.

A page of a prefix that several requests have in common comes free with the last of them:

    prefix tree                  retract a       retract a and b
    [system prompt: 40 pages]    still held      free
       |- a: 3 pages             free            free
       `- b: 5 pages             held by b       free
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from engine_adapter.core.request import RequestRow


class SharedPages(NamedTuple):
    """Pages of a row that others hold too.

    Attributes:
        node: Names the pages: equal for all rows that hold them.
        pages: How many.
        holders: How many requests hold them, the row included.
    """

    node: int
    pages: int
    holders: int


class Release:
    """The pages of rows that give up theirs together, in any order."""

    def __init__(self, before: Release | None = None) -> None:
        """Nobody has given up anything, or only those who had ``before``."""
        self._holders: dict[int, int] = dict(before._holders) if before else {}

    def add(self, row: RequestRow) -> int:
        """The row gives up its pages; how many more are available with that."""
        gained = row.freeable_pages
        for part in row.shared:
            holders = self._holders.get(part.node, part.holders) - 1
            self._holders[part.node] = holders
            if holders == 0:
                gained += part.pages
        return gained

    def frees_part_of(self, row: RequestRow) -> bool:
        """Whether pages are available because this row, among others, gave them up."""
        return row.freeable_pages > 0 or any(self._holders.get(p.node) == 0 for p in row.shared)
