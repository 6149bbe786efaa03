"""The sums over a step's rows that its duration depends on.

A row that computes ``p`` tokens after ``c`` tokens already in its KV contributes

    P += p      A += p (p + c)      S += p + c      Q += (p + c)^2      R += 1

and the step as a whole B = 1 if P > 1: products of a matrix and a vector become products of two
matrices, which cost more from the second token on and little for the next ones.

Decoding requests (p = 1) and prefill chunks are summed apart because a step's executor depends on
which of them are present.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine_adapter.core.plan import StepKind


@dataclass(slots=True)
class StepLoad:
    """Running sums; rows are added one at a time.

    Attributes:
        decode_rows: Number of decoding requests.
        decode_context: Sum of ``1 + c`` over them, which is also their attention sum.
        decode_square: Sum of ``(1 + c)^2`` over them.
        chunk_rows: Number of prefill chunks.
        chunk_tokens: Sum of ``p`` over them.
        chunk_attention: Sum of ``p (p + c)``.
        chunk_context: Sum of ``p + c``.
        chunk_square: Sum of ``(p + c)^2``.
    """

    decode_rows: int = 0
    decode_context: int = 0
    decode_square: int = 0
    chunk_rows: int = 0
    chunk_tokens: int = 0
    chunk_attention: int = 0
    chunk_context: int = 0
    chunk_square: int = 0

    def add_decode(self, context_tokens: int) -> None:
        """Add a row that computes one token after ``context_tokens``."""
        length = context_tokens + 1
        self.decode_rows += 1
        self.decode_context += length
        self.decode_square += length * length

    def add_chunk(self, num_tokens: int, context_tokens: int) -> None:
        """Add a chunk of ``num_tokens`` prompt tokens after ``context_tokens``."""
        length = num_tokens + context_tokens
        self.chunk_rows += 1
        self.chunk_tokens += num_tokens
        self.chunk_attention += num_tokens * length
        self.chunk_context += length
        self.chunk_square += length * length

    def copy(self) -> StepLoad:
        """An independent load with the same sums."""
        return StepLoad(
            self.decode_rows,
            self.decode_context,
            self.decode_square,
            self.chunk_rows,
            self.chunk_tokens,
            self.chunk_attention,
            self.chunk_context,
            self.chunk_square,
        )

    @property
    def kind(self) -> StepKind:
        """Which executor runs this load."""
        if self.decode_rows:
            return StepKind.MIXED if self.chunk_rows else StepKind.DECODE
        return StepKind.PREFILL if self.chunk_rows else StepKind.IDLE

    @property
    def num_tokens(self) -> int:
        """Tokens computed: P."""
        return self.decode_rows + self.chunk_tokens

    def regressors(self) -> tuple[float, float, float, float, float, float, float]:
        """``(P, A, S, Q, R, B, 1)`` of the whole step, the order of a coefficient vector."""
        return (
            float(self.decode_rows + self.chunk_tokens),
            float(self.decode_context + self.chunk_attention),
            float(self.decode_context + self.chunk_context),
            float(self.decode_square + self.chunk_square),
            float(self.decode_rows + self.chunk_rows),
            float(self.num_tokens > 1),
            1.0,
        )
