"""EcoServe: one class of requests, memory short."""

from __future__ import annotations

from dataclasses import replace

from bench.reproduce.figure import Cell, Experiment, Figure, Order, less, ratio
from bench.reproduce.world import (
    Figures,
    Job,
    Setup,
    Spread,
    measure,
    play,
    sustained_rate,
    unloaded,
)
from engine_adapter.scheduling.targets import Slo

SHAREGPT = Job(Spread.by_deviation(161.3, 250.0, 2500), Spread.by_deviation(338.0, 240.0, 990))
ALPACA = Job(Spread.by_deviation(19.3, 30.0, 2000), Spread.by_deviation(58.4, 45.0, 292))
BOOKS = Job(Spread.by_deviation(1500.0, 500.0, 2048), Spread.by_deviation(681.0, 200.0, 1040))
SETUP = Setup(
    "a100-llama-3.1-8b", SHAREGPT, kv_tokens=14_600, rate=5.5, duration_s=40.0, lead_s=0.0,
    outstanding=0,
)  # fmt: skip
# Alpaca's KV fits the pool at any rate a table can serve; a fifth of it makes memory short again.
LOADS = {
    "ShareGPT": (SETUP, 12.0),
    "Alpaca": (
        replace(
            SETUP, online=ALPACA, rate=20.0, kv_tokens=2_900, duration_s=10.0, output_bound=410
        ),
        60.0,
    ),
    "BookCorpus": (replace(SETUP, online=BOOKS, rate=0.6, duration_s=60.0), 2.0),
}
BEST = {
    "ShareGPT": "padding=0.15,reserve=0.03,buffer=0.15",
    "Alpaca": "padding=0.1,reserve=0.02,buffer=0.15",
    "BookCorpus": "padding=0.2,reserve=0.04,buffer=0.1",
}
"""The paper's best settings (Fig. 12)."""
SYSTEMS = ("ecoserve", "fastgen", "vllm", "orca", "multires", "distserve")
STEPS = ("ecoserve_d", "ecoserve_sd", "ecoserve_sdo", "ecoserve")


def _sustained(load: str, seed: int) -> Cell:
    setup, most = LOADS[load]
    quiet = unloaded(setup, seed)
    made = {"ecoserve": f"ecoserve:{BEST[load]}"}
    rates = {
        name: sustained_rate(setup, made.get(name, name), seed, most, quiet) for name in SYSTEMS
    }
    return {
        name: {"rate": rate, "rate of a GPU": rate / (2.0 if name == "distserve" else 1.0)}
        for name, rate in rates.items()
    }


def _at(setup: Setup, names: tuple[str, ...], slo: Slo, seed: int) -> dict[str, Figures]:
    return {name: measure(play(setup, name, slo, seed), slo, (1.0,)) for name in names}


def _steps(seed: int) -> Cell:
    return _at(SETUP, ("vllm", *STEPS), unloaded(SETUP, seed).slo, seed)


def _causes(seed: int) -> Cell:
    """One thing changed at a time, ShareGPT at 5.5 a second; then the engine around the policy."""
    slo = unloaded(SETUP, seed).slo
    large = replace(SETUP, kv_tokens=146_000)
    small = replace(SETUP, chunk_tokens=512)
    blocks = replace(SETUP, page_tokens=32)
    other = replace(SETUP, device="a100-qwen3-32b-tp2", rate=2.75)
    names = {
        "vllm": ("vllm", SETUP),
        "vllm_swap": ("vllm_swap", SETUP),
        "fastgen": ("fastgen", SETUP),
        "ecoserve": ("ecoserve", SETUP),
        "no padding": ("ecoserve:padding=0", SETUP),
        "padding 0.3": ("ecoserve:padding=0.3", SETUP),
        "reserve 0.01": ("ecoserve:reserve=0.01", SETUP),
        "reserve 0.1": ("ecoserve:reserve=0.1", SETUP),
        "no buffer": ("ecoserve:buffer=0", SETUP),
        "no lending": ("ecoserve_sdo", SETUP),
        "no order": ("ecoserve:ordered=0", SETUP),
        "no groups": ("ecoserve:synced=0", SETUP),
        "oracle": ("ecoserve", replace(SETUP, predictor="oracle")),
        "fastgen, blocks of 32": ("fastgen", blocks),
        "ecoserve, blocks of 32": ("ecoserve", blocks),
        "fastgen, steps of 512": ("fastgen", small),
        "ecoserve, steps of 512": ("ecoserve", small),
        "fastgen, Qwen3-32B": ("fastgen", other),
        "ecoserve, Qwen3-32B": ("ecoserve", other),
        "fastgen, 10x memory": ("fastgen", large),
        "ecoserve, 10x memory": ("ecoserve", large),
    }
    found = {
        name: measure(play(setup, policy, slo, seed), slo)
        for name, (policy, setup) in names.items()
    }
    late = Slo(1000.0, 1000.0)
    found["deadlines out of sight"] = measure(play(SETUP, "ecoserve", late, seed), late)
    return found


def _giving_way(seed: int) -> Cell:
    """Sustained rates if each request that gives way held the engine up for a time."""
    most = LOADS["ShareGPT"][1]
    quiet = unloaded(SETUP, seed)
    found = {}
    for name in ("ecoserve", "fastgen", "vllm"):
        rates = {
            f"{round(1e3 * cost_s)} ms": sustained_rate(
                replace(SETUP, give_way_s=cost_s), name, seed, most, quiet
            )
            for cost_s in (0.1, 0.4)
        }
        large = replace(SETUP, kv_tokens=146_000)
        rates["10x memory"] = sustained_rate(large, name, seed, 2.0 * most, quiet)
        found[name] = rates
    return found


def _rate(bounds: dict[str, tuple[float, float]]) -> tuple[Figure, ...]:
    """The middle of the range a paper gives."""
    found = tuple(
        Figure(
            f"sustained rate over {name} ({low:g} to {high:g} times)",
            "Fig. 10",
            (low + high) / 2.0,
            ratio("ecoserve", "rate", name),
        )
        for name, (low, high) in bounds.items()
    )
    others = Figure("multires over fastgen", "2.2", 1.10, ratio("multires", "rate", "fastgen"))
    return (*found, others)


ORDER = (
    Order(
        "sustained rate", "Fig. 10", ("ecoserve", "fastgen", "vllm", "orca"), "rate", least=False
    ),
    Order("sustained rate of a GPU", "4", ("ecoserve", "distserve"), "rate of a GPU", least=False),
)
WHY = (
    "EcoServe keeps four fifths of what FastGen sustains; the paper has it ahead. An "
    "answer that has all of its memory set aside keeps others from using it, and "
    "lending finds few answers short enough. With ten times the memory the two are "
    "alike. Other settings move it by about a fifth ([causes](#causes)). On these step "
    "tables, [giving way](#what-giving-way-costs) costs what is computed again and no "
    "more; the paper counts 16 to 20 % of a request's time."
)
EXPERIMENTS = (
    *(
        Experiment(
            "EcoServe",
            f"sustained rate, {load}",
            f"Llama-3.1-8B's step times on an A100 with OPT-13B's KV tokens ({setup.kv_tokens:,}); lengths by mean "
            "and spread. The highest rate whose mean normalised latency is within twice the unloaded one. DistServe has "
            "two GPUs."
            if load == "ShareGPT"
            else f"The same with {setup.kv_tokens:,} KV tokens.",
            lambda seed, load=load: _sustained(load, seed),  # type: ignore[misc]
            _rate(bounds),
            ORDER,
            WHY if load == "ShareGPT" else "",
        )
        for (load, (setup, _)), bounds in zip(
            LOADS.items(),
            (
                {"vllm": (2.5, 4.0), "fastgen": (1.25, 2.25), "orca": (22.0, 64.0)},
                {"vllm": (1.13, 2.14), "fastgen": (1.2, 1.24), "orca": (5.6, 9.0)},
                {"vllm": (2.5, 2.8), "fastgen": (1.88, 2.33), "orca": (12.5, 13.0)},
            ),
            strict=True,
        )
    ),
    Experiment(
        "EcoServe",
        "its steps",
        "ShareGPT at 5.5 requests a second.",
        _steps,
        (
            *(
                Figure(f"{name}: mean JCT less than vLLM, %", "Fig. 11", paper, less(name, "jct_mean", "vllm"))
                for name, paper in zip(STEPS, (28.0, 47.0, 54.0, 83.0), strict=True)
            ),
            Figure("ecoserve: mean TBT less than vLLM, %", "Fig. 11", 70.0, less("ecoserve", "tbt_mean", "vllm")),
        ),
        (
            Order("mean JCT", "Fig. 11", tuple(reversed(STEPS)), "jct_mean"),
        ),
    ),
)  # fmt: skip
CAUSES = Experiment(
    "EcoServe",
    "causes",
    "ShareGPT at 5.5 requests a second, one thing of `ecoserve` or of the engine changed at a time. Qwen3-32B runs on "
    "two A100s at half the rate.",
    _causes,
)
GIVING_WAY = Experiment(
    "EcoServe",
    "what giving way costs",
    "Sustained rate on ShareGPT if a request that gives way holds the engine up for a "
    "time as well, and with ten times the memory.",
    _giving_way,
)
