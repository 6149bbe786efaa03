"""BROS: real-time chat beside best-effort requests."""

from __future__ import annotations

from dataclasses import replace

from bench.reproduce.figure import Cell, Experiment, Figure, Order, less, ratio
from bench.reproduce.world import Job, Setup, Spread, measure, play
from engine_adapter.scheduling.targets import Slo

SLO = Slo(0.4, 0.2)
BEST_EFFORT = Job(Spread(784, 0.19, 512, 1024), Spread(81, 0.34, 32, 128))
SYSTEMS = ("vllm", "round_robin", "bros")
SHAREGPT = Setup(
    "a100-llama-3.1-8b",
    Job(Spread.by_deviation(222.8, 256.4, 4000), Spread.by_deviation(234.5, 268.5, 2000)),
    kv_tokens=55_000,
    rate=10.0,
    offline=(BEST_EFFORT,),
    outstanding=64,
    duration_s=20.0,
    lead_s=10.0,
)
LMSYS = Setup(
    "a100-llama-3.1-8b",
    Job(Spread.by_deviation(90.5, 148.5, 4000), Spread.by_deviation(237.0, 228.2, 2000)),
    kv_tokens=55_000,
    rate=10.0,
    offline=(BEST_EFFORT,),
    outstanding=64,
    duration_s=20.0,
    lead_s=10.0,
)

SHORT = replace(SHAREGPT, kv_tokens=22_000)
"""Memory so short that best-effort requests have to give way."""


def _shared(seed: int) -> Cell:
    """Free slots are anyone's and ends give way; or blocks belong to one request and all of it."""
    cases = {"shared": ("bros", 1), "apart": ("bros:cuts=0", 16)}
    return {
        name: measure(play(replace(SHORT, page_tokens=page), policy, SLO, seed), SLO, (1.0,))
        for name, (policy, page) in cases.items()
    }


def _run(setup: Setup, seed: int) -> Cell:
    return {name: measure(play(setup, name, SLO, seed), SLO, (1.0,)) for name in SYSTEMS}


def _figures(
    latency: tuple[float, float], loss: tuple[float, float], ttft: float, tpot: float
) -> tuple[Figure, ...]:
    where = "Fig. 10"
    return (
        Figure("normalised latency less than vLLM, %", where, latency[0], less("bros", "normalised", "vllm")),
        Figure("normalised latency less than RR, %", where, latency[1], less("bros", "normalised", "round_robin")),
        Figure("best-effort requests less than vLLM, %, at most", where, loss[0], less("bros", "offline_requests", "vllm"), "<="),
        Figure("best-effort requests less than RR, %, at most", where, loss[1], less("bros", "offline_requests", "round_robin"), "<="),
        Figure("TTFT attainment over vLLM", "Fig. 11", ttft, ratio("bros", "ttft_in_time@1", "vllm")),
        Figure("TPOT attainment over vLLM", "Fig. 11", tpot, ratio("bros", "tpot_in_time@1", "vllm")),
    )  # fmt: skip


ORDER = (
    Order("normalised latency", "Fig. 10", ("bros", "round_robin", "vllm"), "normalised"),
    Order(
        "TTFT in time", "Fig. 11", ("bros", "round_robin", "vllm"), "ttft_in_time@1", least=False
    ),
)
EXPERIMENTS = (
    Experiment(
        "BROS",
        "ShareGPT",
        "Llama-3.1-8B's step times on an A100 with OPT-13B's KV tokens on two A100s (55,000); 10 real-time requests a "
        "second, Poisson; TTFT 0.4 s, TPOT 0.2 s; 64 best-effort requests always there.",
        lambda seed: _run(SHAREGPT, seed),
        _figures((74.2, 54.3), (11.3, 8.8), 36.4, 1.73),
        ORDER,
    ),
    Experiment(
        "BROS",
        "LMSYS",
        "The same with the lengths of LMSYS-Chat-1M.",
        lambda seed: _run(LMSYS, seed),
        _figures((69.6, 25.8), (17.7, 15.2), 21.4, 2.62),
        ORDER,
    ),
    Experiment(
        "BROS",
        "shared blocks",
        f"ShareGPT at 10 real-time requests a second with {SHORT.kv_tokens:,} KV tokens. On: pages of one token, so a "
        "free slot is anyone's, and best-effort requests give up their ends. Off: blocks of 16 and whole requests.",
        _shared,
        (
            Figure("TTFT attainment, on over off", "Fig. 13", 1.23, ratio("shared", "ttft_in_time@1", "apart")),
            Figure("TPOT attainment, on over off", "Fig. 13", 1.63, ratio("shared", "tpot_in_time@1", "apart")),
        ),
        (
            Order("normalised latency", "Fig. 13", ("shared", "apart"), "normalised"),
        ),
    ),
)  # fmt: skip
