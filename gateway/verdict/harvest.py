"""What batch work was harvested beside chat, as amounts: tokens, hours of engines, money. Pure.

An engine computes chat and batch rows in the same steps. So its time is divided by their tokens:
the share of batch tokens among all tokens of its steps, of the time of its steps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gateway.dashboard import wording

_PRICE: Final = re.compile(r"(\d+(?:\.\d+)?) ?([^\s\d.,-]{1,3})")


@dataclass(frozen=True)
class Price:
    """What a million batch tokens are worth, in a currency: `0.30 USD`."""

    per_million: float
    currency: str

    @classmethod
    def parse(cls, said: str) -> Price | None:
        """A price as it stands in the settings; none where it is empty.

        Raises:
            ValueError: It is none.
        """
        if not said.strip():
            return None
        found = _PRICE.fullmatch(said.strip())
        if found is None:
            raise ValueError("must be an amount and a currency, such as 0.30 USD")
        return cls(float(found[1]), found[2])

    def of(self, tokens: float) -> str:
        """What so many tokens are worth: '2.43 USD'."""
        return f"{tokens * self.per_million / 1e6:,.2f} {self.currency}"


@dataclass(frozen=True)
class Harvest:
    """Batch tokens that were computed, and the engine time that they took.

    Attributes:
        tokens: Prompt tokens that were not cached, and completion tokens.
        engine_s: Seconds, of each GPU where engines run on GPUs; none where it is not known.
        on_gpus: Whether engines run on GPUs.
        price: None where none is set.
    """

    tokens: float = 0.0
    engine_s: float | None = 0.0
    on_gpus: bool = False
    price: Price | None = None

    @property
    def amount(self) -> str:
        """The tokens: '8.1 M batch tokens'."""
        return f"{wording.amount(self.tokens)} batch tokens"

    @property
    def time(self) -> str:
        """The engine time: '2.1 GPU-hours'; empty where it is not known."""
        if not self.engine_s:
            return ""
        of, hours = "GPU" if self.on_gpus else "engine", self.engine_s / 3600
        if hours >= 0.1:
            return f"{hours:,.1f} {of}-hours"
        return f"{max(0.1, 60 * hours):.{0 if hours >= 1 / 60 else 1}f} {of}-minutes"

    @property
    def worth(self) -> str:
        """The money: 'worth 2.43 USD'; empty without a price."""
        return "" if self.price is None else f"worth {self.price.of(self.tokens)}"

    def part(self, tokens: float) -> Harvest:
        """Some of these tokens or others, at the same time for each; unknown where it is zero."""
        per_token = self.engine_s / self.tokens if self.engine_s and self.tokens else None
        engine_s = None if per_token is None else per_token * tokens
        return Harvest(tokens, engine_s, self.on_gpus, self.price)
