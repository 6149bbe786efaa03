"""Families of models that co-serving was proven with, and the scenarios that each went through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STOPS: Final = ("abort_prefill", "abort_decode", "recompute", "park")
DROPS: Final = ("drop_chunk", "drop_decode")
COPIES: Final = ("restore", "shared_prefix", "anew")


@dataclass(frozen=True, slots=True)
class Family:
    """One tiny model (`tiny_models.py`) and what it shows.

    Attributes:
        form: What stands for, in the table of the docs.
        level: What its engine says.
        scenarios: Of `coserving_scenarios.py`; each compares greedy output with an undisturbed run.
        quick: Part of `make test`.
    """

    form: str
    level: int
    scenarios: tuple[str, ...]
    quick: bool = False


FAMILIES: Final[dict[str, Family]] = {
    "llama": Family("Llama: dense, grouped-query attention", 3, STOPS + DROPS + COPIES),
    "qwen3": Family("Qwen3: dense, normed queries and keys", 3, STOPS + DROPS + COPIES),
    "qwen3_moe": Family("Qwen3-MoE: experts", 3, STOPS + DROPS + COPIES),
    "mixtral": Family("Mixtral: experts", 3, STOPS + DROPS + COPIES),
    "olmo2": Family("OLMo 2: norms behind the layers", 2, STOPS + COPIES, quick=True),
    "gemma3": Family("Gemma 3: sliding windows, KV kept whole", 2, STOPS + COPIES),
    "deepseek_v2": Family("DeepSeek-V2: latent KV, experts", 3, STOPS + DROPS + COPIES),
    "deepseek_v3": Family("DeepSeek-V3: latent KV, experts", 3, STOPS + DROPS + COPIES),
}
