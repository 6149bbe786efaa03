"""What limits say: numbers per minute, and how they are told to a caller (row T-10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["requests", "tokens"]
Scope = Literal["key", "project"]

_SCOPE_WORDS: Final = {"key": "this API key", "project": "this project"}


@dataclass(frozen=True, slots=True)
class Rates:
    """Limits per minute of a key or a project.

    None: whatever the settings say, and without a setting no limit. 0: nothing is allowed.
    """

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    def over(self, default: Rates) -> Rates:
        """These limits, with `default` where they say nothing."""
        return Rates(
            default.requests_per_minute
            if self.requests_per_minute is None
            else self.requests_per_minute,
            default.tokens_per_minute if self.tokens_per_minute is None else self.tokens_per_minute,
        )


UNSET: Final = Rates()


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit that a request meets."""

    scope: Scope
    kind: Kind
    per_minute: int
    cost: int

    @property
    def whose(self) -> str:
        """The scope in words."""
        return _SCOPE_WORDS[self.scope]


def duration(us: int) -> str:
    r"""A time in the form of OpenAI's reset headers: `20ms`, `1s`, `6m0s`, rounded up.

    Whole numbers only: clients are known to read them with `(\d+)([hms]+)`.
    """
    if us < 1_000_000:
        return f"{-(-us // 1000)}ms" if us > 0 else "0s"
    seconds = -(-us // 1_000_000)
    minutes, seconds = divmod(seconds, 60)
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
