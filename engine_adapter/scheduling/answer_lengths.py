"""How long an answer will be, for policies that ask: a quantile of the answers of the same group.

A batch asks the same question of many inputs, so its answers are alike; of chat the spread is wide
and the quantile says little more than the mean. A policy sees nothing but the number that comes
out, ``expected_output_tokens`` of a request: an expectation, not a bound.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from engine_adapter.scheduling.request import Request

DEFAULT_TOKENS = 256
"""Expected of a request while nothing is known of any."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is known of a request before it is answered.

    Attributes:
        rid: Its id.
        prompt_tokens: Length of its prompt.
        max_output_tokens: Bound the client gave.
        group: Whose answers are like this one's: its batch, or else its class and endpoint.
        temperature: Of its sampling; 0 is greedy.
    """

    rid: str
    prompt_tokens: int
    max_output_tokens: int
    group: str = ""
    temperature: float = 0.0

    @classmethod
    def about(cls, request: Request, temperature: float = 0.0) -> Asked:
        """What is known of an engine's request."""
        group = request.batch_id or request.request_class.name
        return cls(
            request.rid, request.prompt_tokens, request.max_output_tokens, group, temperature
        )

    def bounded(self, tokens: float) -> int:
        """An expectation inside what the request may have."""
        return max(1, min(round(tokens), self.max_output_tokens))


class LengthPredictor(Protocol):
    """Expects a length of each request and learns from those that have ended."""

    name: str

    def expect(self, asked: Asked) -> int:
        """Output tokens, at least 1 and at most the request's bound."""
        ...

    def learn(self, asked: Asked, output_tokens: int) -> None:
        """The request ended by itself or at its bound; aborted ones say nothing."""
        ...


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
        for group in (asked.group, ALL):
            # Put behind the others again: the group heard of least recently is forgotten first.
            answers = self._groups.pop(group, None) or _Answers()
            self._groups[group] = answers
            answers.add(output_tokens)
        if len(self._groups) > MOST_GROUPS:
            del self._groups[next(iter(self._groups))]
