"""A quantile of the answers that requests of the same group have had.

A batch asks the same question of many inputs, so its answers are alike; of chat the spread is wide
and the quantile says little more than the mean.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

from engine_adapter.prediction.base import DEFAULT_TOKENS, Asked

REMEMBERED = 256
"""Answers kept of a group: the newest."""
MOST_GROUPS = 1024
LEAST_ANSWERS = 8
"""A group with fewer is answered from all groups together."""
ALL = "\0all"


class _Answers:
    """The newest lengths, in the order they came and by size."""

    __slots__ = ("_came", "_sorted")

    def __init__(self) -> None:
        self._came: deque[int] = deque()
        self._sorted: list[int] = []

    def __len__(self) -> int:
        return len(self._came)

    def add(self, tokens: int) -> None:
        self._came.append(tokens)
        insort(self._sorted, tokens)
        if len(self._came) > REMEMBERED:
            del self._sorted[bisect_left(self._sorted, self._came.popleft())]

    def quantile(self, share: float) -> int:
        return self._sorted[min(len(self._sorted) - 1, int(share * len(self._sorted)))]


class History:
    """Quantile of history, group by group.

    Args:
        quantile: Share of answers that shall be no longer than expected.
    """

    name = "history"

    def __init__(self, quantile: float = 0.6) -> None:
        """Nothing is known yet.

        Raises:
            ValueError: If the quantile is outside its range.
        """
        if not 0.0 < quantile < 1.0:
            raise ValueError(f"a quantile of {quantile!r}; give a share above 0 and below 1")
        self._quantile = quantile
        self._groups: dict[str, _Answers] = {}

    def expect(self, asked: Asked) -> int:
        """The group's quantile; with too few answers that of all, and first a plain number."""
        for group in (asked.group, ALL):
            answers = self._groups.get(group)
            if answers is not None and len(answers) >= LEAST_ANSWERS:
                return asked.bounded(answers.quantile(self._quantile))
        return asked.bounded(DEFAULT_TOKENS)

    def learn(self, asked: Asked, output_tokens: int) -> None:
        """Remember the answer."""
        for group in (asked.group, ALL):
            # Put behind the others again: the group heard of least recently is forgotten first.
            answers = self._groups.pop(group, None) or _Answers()
            self._groups[group] = answers
            answers.add(output_tokens)
        if len(self._groups) > MOST_GROUPS:
            del self._groups[next(iter(self._groups))]
