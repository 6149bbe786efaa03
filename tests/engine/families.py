"""Families of models that co-serving was proven with, and the scenarios that each went through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from engine_adapter.sglang.versions import family_of

STOPS: Final = ("abort_prefill", "abort_decode", "recompute", "park")
DROPS: Final = ("drop_chunk", "drop_decode")
COPIES: Final = ("restore", "shared_prefix", "anew")


@dataclass(frozen=True, slots=True)
class Family:
    """One tiny model (`tiny_models.py`) and what it shows.

    Attributes:
        form: What stands for, in the table of the docs.
        level: What its engine says on the newest releases of SGLang.
        scenarios: Of `coserving_scenarios.py`; each compares greedy output with an undisturbed run.
        quick: Part of `make test`.
        lower: First release of a family of releases -> what its engine says there, if that is less.
    """

    form: str
    level: int
    scenarios: tuple[str, ...]
    quick: bool = False
    lower: Mapping[str, int] = field(default_factory=dict)

    def level_on(self, sglang: str) -> int:
        """What its engine says on a release of SGLang."""
        return self.lower.get(family_of(sglang), self.level)

    def scenarios_on(self, sglang: str) -> tuple[str, ...]:
        """The scenarios of the level that it has on a release: none takes requests out below 3."""
        full = self.level_on(sglang) == self.level
        return tuple(one for one in self.scenarios if full or one not in DROPS)


FAMILIES: Final[dict[str, Family]] = {
    "llama": Family("Llama: dense, grouped-query attention", 3, STOPS + DROPS + COPIES),
    "qwen3": Family("Qwen3: dense, normed queries and keys", 3, STOPS + DROPS + COPIES),
    "qwen3_moe": Family("Qwen3-MoE: experts", 3, STOPS + DROPS + COPIES),
    "mixtral": Family("Mixtral: experts", 3, STOPS + DROPS + COPIES),
    "olmo2": Family(
        "OLMo 2: norms behind the layers",
        3,
        STOPS + DROPS + COPIES,
        quick=True,
        lower={"0.5.16": 2},
    ),
    "gemma3": Family("Gemma 3: sliding windows, KV kept whole", 2, STOPS + COPIES),
    "qwen2_vl": Family(
        "Qwen2-VL: vision, three axes of positions, prompts of text", 3, STOPS + DROPS + COPIES
    ),
    "deepseek_v2": Family("DeepSeek-V2: latent KV, experts", 3, STOPS + DROPS + COPIES),
    "deepseek_v3": Family("DeepSeek-V3: latent KV, experts", 3, STOPS + DROPS + COPIES),
}
