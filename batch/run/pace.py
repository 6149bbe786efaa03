"""How much work rows are to their engine, and how fast it does it. Pure.

    work of a row   its prompt tokens and expected answer tokens, at what the engine's profile
                    predicts that each takes
    pace            work of the rows that ended lately, per second

Both in predicted seconds: an engine that works as predicted has a pace of 1, one that also serves
chat has less. An engine without a profile counts tokens in the same way, and its pace is only
known once rows have ended.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

SPAN_S: Final = 30.0
"""Over how long the pace is measured."""

USUAL_ANSWER_TOKENS: Final = 128
"""Of a row whose batch has no answer yet."""


@dataclass(frozen=True, slots=True)
class TokenCosts:
    """What a token takes at an engine, in seconds; relative to each other where `measured` is not.

    Attributes:
        prompt_s: For a token of a prompt.
        answer_s: For a token of an answer, beside as many others as usual.
        measured: Whether these are an engine's own.
    """

    prompt_s: float = 0.125
    answer_s: float = 1.0
    measured: bool = False

    @classmethod
    def reported(cls, prompt_s: object, answer_s: object) -> TokenCosts:
        """Those that an engine reports; the usual relation where it reports none."""
        if isinstance(prompt_s, float) and isinstance(answer_s, float):
            return cls(max(prompt_s, 1e-9), max(answer_s, 1e-9), measured=True)
        return cls()

    def work(self, prompt_tokens: int, answer_tokens: float) -> float:
        return max(1, prompt_tokens) * self.prompt_s + max(1.0, answer_tokens) * self.answer_s


class Pace:
    """The work that an engine has done in the last `SPAN_S`."""

    def __init__(self) -> None:
        self.costs = TokenCosts()
        self._ended: deque[tuple[float, float]] = deque()
        self._work = 0.0
        self._since_s = 0.0

    def begin(self, now_s: float) -> None:
        """The first row after a time without any: what was before says nothing."""
        self._ended.clear()
        self._work = 0.0
        self._since_s = now_s

    def note(self, now_s: float, work: float) -> None:
        self._ended.append((now_s, work))
        self._work += work

    def per_s(self, now_s: float) -> float | None:
        """Work per second; none where nothing is known."""
        while self._ended and self._ended[0][0] < now_s - SPAN_S:
            self._work -= self._ended.popleft()[1]
        if not self._ended:
            return 1.0 if self.costs.measured else None
        return self._work / max(1.0, min(SPAN_S, now_s - self._since_s))
