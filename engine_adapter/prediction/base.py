"""The seam: asked when a request arrives, told when it has ended.

A policy sees nothing but the number that comes out, ``expected_output_tokens`` of a request. It is
an expectation, not a bound: an answer may end before it or go on behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from engine_adapter.scheduling.request import RequestRow

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
    def about(cls, row: RequestRow, temperature: float = 0.0) -> Asked:
        """What is known of an engine's request."""
        group = row.batch_id or row.request_class.name
        return cls(row.rid, row.prompt_tokens, row.max_output_tokens, group, temperature)

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
