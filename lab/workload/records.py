"""What one request did, as its client saw it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class RequestRecord:
    """One request of a run; instants are seconds after the start of the run.

    Attributes:
        name: Name of the request within its run; equal names pair across systems.
        online: Class.
        input_tokens: Length of the prompt.
        scheduled_s: When it should have been sent.
        sent_s: When it was sent.
        token_times_s: When each output token arrived.
        cached_tokens: Prompt tokens the engine reports as prefix hits.
        retractions: How often the engine says it took the request's KV away.
        error: Why it failed; empty if it did not.
        given_up_s: When the client stopped waiting for the rest; None for a complete answer.
        done: The answer is complete.
    """

    name: str
    online: bool
    input_tokens: int
    scheduled_s: float
    sent_s: float = 0.0
    token_times_s: list[float] = field(default_factory=list)
    cached_tokens: int = 0
    retractions: int = 0
    error: str = ""
    given_up_s: float | None = None
    done: bool = False

    @property
    def ttft_s(self) -> float | None:
        """From the scheduled instant to the first token; None if none came."""
        return self.token_times_s[0] - self.scheduled_s if self.token_times_s else None

    @property
    def gaps_s(self) -> list[float]:
        """Gaps between tokens; the last one of a stream that was cut is as long as it stood."""
        times = self.token_times_s
        return [end - begin for begin, end in zip(times, self.gap_ends_s, strict=False)]

    @property
    def gap_ends_s(self) -> list[float]:
        """The instant at which each of ``gaps_s`` ends."""
        ends = self.token_times_s[1:]
        if self.token_times_s and self.given_up_s is not None:
            ends.append(self.given_up_s)
        return ends

    def on_progress(
        self, now_s: float, completion_tokens: int, cached_tokens: int, retractions: int
    ) -> None:
        """Take in one piece of the answer.

        Tokens that arrive together get the same instant: their gap is 0 for a reader too.
        """
        if retractions > self.retractions:
            self.retractions = retractions
        elif not self.token_times_s:
            self.cached_tokens = cached_tokens
        new = completion_tokens - len(self.token_times_s)
        self.token_times_s.extend([now_s] * new)

    def tokens_within(self, start_s: float, end_s: float) -> int:
        """Fresh tokens in a window: the prompt counts, without prefix hits, when its first
        output token arrives; each output token when it arrives.
        """
        inside = sum(1 for at_s in self.token_times_s if start_s <= at_s < end_s)
        if self.token_times_s and start_s <= self.token_times_s[0] < end_s:
            inside += self.input_tokens - self.cached_tokens
        return inside
