"""Why figures are not near: one thing of the set-up changed, and the same systems run again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bench.reproduce import bros, conserve, ecoserve
from bench.reproduce.figure import Cell, Change, Experiment, Explanation
from bench.reproduce.world import (
    Job,
    Setup,
    Spread,
    compare,
    measure,
    play,
    sustained_rate,
    unloaded,
)
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.targets import DEFAULT_SHARE, Slo

LARGE = 8192
WIDE = "ecoserve:buffer=-0.5"
"""Guests of up to three quarters of a host's answer, not of 35 %."""


def _named(experiments: tuple[Experiment, ...], paper: str, name: str) -> Experiment:
    return next(one for one in experiments if (one.paper, one.name) == (paper, name))


# --- ConServe v2: what SP does

LONGER = replace(conserve.GAMMA, duration_s=120.0)


def _beside(setup: Setup, policy: str, budget: int) -> Callable[[int], Cell]:
    """The systems of a set-up with another SP."""
    systems = conserve.SYSTEMS | {"SP": (policy, PolicySettings(token_budget=budget))}
    return lambda seed: compare(replace(setup, chunk_tokens=budget), systems, seed)


def _thrown_away(setup: Setup) -> tuple[Change, ...]:
    return (
        Change("SP's steps hold 8,192 tokens", _beside(setup, "sarathi_p", LARGE)),
        Change(
            "an arrival costs one document its KV", _beside(setup, "discarding:share=0.01", 2048)
        ),
        Change(
            "every second arrival costs one document its KV",
            _beside(setup, "discarding:share=0.01,every=2", 2048),
        ),
        Change(
            "an arrival costs one document its KV, and steps hold 8,192 tokens",
            _beside(setup, "discarding:share=0.01", LARGE),
        ),
        Change(
            "an arrival costs a twentieth of the documents, and steps hold 8,192 tokens",
            _beside(setup, "discarding:share=0.05", LARGE),
        ),
    )


def _scaled(setup: Setup, share: float = DEFAULT_SHARE) -> Callable[[int], Cell]:
    """Attainment at 1 and 1.5 times the targets."""

    def run(seed: int) -> Cell:
        found = {}
        for scale in (1.0, 1.5):
            systems = {"C": conserve.SYSTEMS["C"]}
            cell = compare(setup, systems, seed, scale, (1.0, scale), share)
            keys = (f"ttft_in_time@{scale:g}", f"tbt_in_time@{scale:g}")
            found[f"C@{scale:g}"] = cell["C"] | {"least": min(cell["C"][key] for key in keys)}
        return found

    return run


def _large_ablation(budget: int) -> Callable[[int], Cell]:
    systems = {
        "SP": ("sarathi_p", PolicySettings(token_budget=budget)),
        "+SLO": ("conserve_v2", PolicySettings(safepoints=False, checkpoints=False)),
    }
    return lambda seed: compare(replace(conserve.GAMMA, chunk_tokens=budget), systems, seed)


# --- ConServe v1: what vLLM++ does

UNCUT = replace(conserve.V1, chunk_tokens=20_000)
UNCUT_LONGER = replace(UNCUT, duration_s=120.0)
LONG_ANSWERS = replace(
    UNCUT_LONGER,
    online=Job(Spread.by_p99(544, 1960, 2126), Spread.by_p99(289, 1442, 2019)),
    offline=(Job(conserve.V1.offline[0].inputs, Spread(1500, 0.4, most=2048)),),
)
"""Chat with BurstGPT's lengths beside documents with answers four times as long."""


def _v1(setup: Setup, stock: str = "non_preemptive") -> Callable[[int], Cell]:
    systems = conserve.V1_SYSTEMS | {"vLLM++": (stock, None)}
    return lambda seed: compare(setup, systems, seed)


def _v1_dear(setup: Setup, stock: str, give_way_s: float) -> Callable[[int], Cell]:
    """The same; each request that gives way holds vLLM++ up, and nobody else."""
    dear = replace(setup, give_way_s=give_way_s)

    def run(seed: int) -> Cell:
        found = compare(setup, {"C1": conserve.V1_SYSTEMS["C1"]}, seed)
        return found | {"vLLM++": compare(dear, {"vLLM++": (stock, None)}, seed)["vLLM++"]}

    return run


def _v1_steps(setup: Setup) -> Callable[[int], Cell]:
    systems = {
        "vLLM++": ("non_preemptive", None),
        "+scheduler": ("conserve_v1", PolicySettings(checkpoints=False)),
    }
    return lambda seed: compare(setup, systems, seed)


# --- EcoServe


def _rates(
    load: str, give_way_s: float = 0.0, memory: int = 1, tolerance: float = 2.0, **changed: str
) -> Callable[[int], Cell]:
    """Sustained rates, with other policies in the place of some."""
    setup, most = ecoserve.LOADS[load]
    setup = replace(setup, give_way_s=give_way_s, kv_tokens=memory * setup.kv_tokens)
    most *= max(1.0, tolerance / 2.0, memory / 1.5)
    names = {n: n for n in ("ecoserve", "fastgen", "vllm", "orca", "multires")} | changed

    def run(seed: int) -> Cell:
        quiet = unloaded(setup, seed)
        return {
            name: {"rate": sustained_rate(setup, made, seed, most, quiet, tolerance=tolerance)}
            for name, made in names.items()
        }

    return run


def _lending(load: str) -> tuple[Change, ...]:
    return (
        Change("lends to answers twice as long", _rates(load, ecoserve=WIDE)),
        Change("400 ms for each that gives way", _rates(load, 0.4)),
        Change(
            "lends to answers twice as long, 400 ms for each that gives way",
            _rates(load, 0.4, ecoserve=WIDE),
        ),
    )


def _few(load: str) -> tuple[Change, ...]:
    return (
        Change("Orca runs two at a time", _rates(load, orca="orca:max_requests=2")),
        Change("Orca runs one at a time", _rates(load, orca="orca:max_requests=1")),
    )


def _steps(setup: Setup, full: str = "ecoserve") -> Callable[[int], Cell]:
    def run(seed: int) -> Cell:
        slo = unloaded(ecoserve.SETUP, seed).slo
        names = {name: name for name in ("vllm", *ecoserve.STEPS)} | {"ecoserve": full}
        return {name: measure(play(setup, made, slo, seed), slo) for name, made in names.items()}

    return run


# --- BROS


def _bros(setup: Setup, slo: Slo = bros.SLO) -> Callable[[int], Cell]:
    return lambda seed: {
        name: measure(play(setup, name, slo, seed), slo, (1.0,)) for name in bros.SYSTEMS
    }


def _loads(setup: Setup, few: int, pace_s: float) -> tuple[Change, ...]:
    slow = replace(setup, device="a100-qwen3-32b-tp2")
    return (
        Change("15 requests a second", _bros(replace(setup, rate=15.0))),
        Change("20 requests a second", _bros(replace(setup, rate=20.0))),
        Change("Qwen3-32B on two A100s", _bros(slow)),
        Change("the same, 13 requests a second", _bros(replace(slow, rate=13.0))),
        Change(f"{few} best-effort requests", _bros(replace(setup, outstanding=few))),
        Change("96 best-effort requests", _bros(replace(setup, outstanding=96))),
        Change("128 best-effort requests", _bros(replace(setup, outstanding=128))),
        Change(f"a pace of {1e3 * pace_s:g} ms", _bros(setup, Slo(0.4, pace_s))),
    )


C, E, B = conserve.EXPERIMENTS, ecoserve.EXPERIMENTS, bros.EXPERIMENTS
V1, V2 = "ConServe v1", "ConServe v2"
EXPLANATIONS = (
    Explanation(
        _named(C, V2, "rates"),
        (4, 8, 9),
        _thrown_away(conserve.GAMMA),
        (
            "Both differences are SP's: how long its steps are, and how much KV it loses on an "
            "arrival. Ours loses next to none."
        ),
    ),
    Explanation(
        _named(C, V2, "scale of the targets"),
        (1, 2),
        (
            Change("step times that vary by 10 %", _scaled(replace(conserve.GAMMA, noise=0.1))),
            Change("lengths of BurstGPT", _scaled(conserve.BURST_8B)),
            Change("4 requests a second", _scaled(replace(conserve.GAMMA, rate=4.0))),
            Change("a window of 120 s", _scaled(LONGER)),
            Change("99.5 of 100 steps asked to be in time", _scaled(conserve.GAMMA, 0.995)),
            Change("99 of 100, and a window of 120 s", _scaled(LONGER, 0.99)),
            Change("99.5 of 100, and 120 s", _scaled(LONGER, 0.995)),
        ),
        (
            "At 1, a load without spread has a P99 hardly above its mean, so every delay is a "
            "miss. At 1.5, the default asks only 98 of 100 steps to be in time."
        ),
    ),
    Explanation(
        _named(C, V2, "variation of arrivals"),
        (3,),
        _thrown_away(replace(conserve.GAMMA, cv=2.0)),
        (
            "Lost documents and longer steps carry it together. One document for each arrival "
            "brings half of it."
        ),
    ),
    Explanation(
        _named(C, V2, "70B, mixed documents"),
        (4, 5, 6, 7),
        (
            *_thrown_away(conserve.BURST_70B),
            Change(
                "every second arrival costs one document, and steps hold 6,656 tokens",
                _beside(conserve.BURST_70B, "discarding:share=0.01,every=2", 6656),
            ),
        ),
        (
            "Lost documents carry the offline tokens, and longer steps the first tokens and "
            "gaps. Together they carry three of the four. One document lost for each arrival "
            "stops SP altogether."
        ),
    ),
    Explanation(
        _named(C, V2, "8B, BurstGPT"),
        (2,),
        _thrown_away(conserve.BURST_8B),
        (
            "With steps of 8,192 tokens, the paper's figure lies between one document lost for "
            "each arrival (2.25) and a twentieth of those that run (5.75)."
        ),
    ),
    Explanation(
        _named(C, V2, "ablation"),
        (1,),
        (
            Change("steps of 8,192 tokens", _large_ablation(LARGE)),
            Change("steps of 16,384 tokens", _large_ablation(2 * LARGE)),
        ),
        ("The length of SP's steps carries it. 8,192 tokens bring 60 % of the paper's figure."),
    ),
    Explanation(
        _named(C, V1, "rates and variation"),
        (6, 7, 8, 9),
        (
            Change("prompts uncut", _v1(UNCUT)),
            Change("4 requests a second", _v1(replace(conserve.V1, rate=4.0))),
            Change("half the memory", _v1(replace(conserve.V1, kv_tokens=21_500))),
            Change("uncut, and a window of 120 s", _v1(UNCUT_LONGER)),
            Change(
                "prompts uncut, 120 s, no priority, 8 documents at a time",
                _v1(replace(UNCUT_LONGER, outstanding=8), "vllm"),
            ),
            Change(
                "prompts uncut, 120 s, no priority, 10 documents at a time",
                _v1(replace(UNCUT_LONGER, outstanding=10), "vllm"),
            ),
            Change(
                "uncut, 120 s, long answers, vLLM's memory",
                _v1(replace(LONG_ANSWERS, rate=3.0), "vllm_priority:kept=0"),
            ),
            Change(
                "the same at 2 requests a second, 2 s for each that gives way",
                _v1_dear(LONG_ANSWERS, "vllm_priority:kept=0", 2.0),
            ),
            Change(
                "long answers at 2 requests a second, 4 s for each that gives way",
                _v1_dear(LONG_ANSWERS, "vllm_priority:kept=0", 4.0),
            ),
            Change(
                "long answers at 2 requests a second, vLLM's memory",
                _v1(LONG_ANSWERS, "vllm_priority:kept=0"),
            ),
        ),
        (
            "No change carries first tokens and pace together. Without any priority, eight to "
            "ten documents at a time make chat wait as long as in the paper. With priority, "
            "answers four times as long do. The pace of 25 times needs requests that give way "
            "to hold vLLM++ up for 4 s each, and first tokens are then about ten times later "
            "than in the paper. The lengths of LongBench's answers and how the paper's vLLM "
            "gives memory back would settle it; the paper has neither."
        ),
    ),
    Explanation(
        _named(C, V1, "ablation"),
        (2,),
        (
            Change("steps of 512 tokens", _v1_steps(replace(conserve.V1, chunk_tokens=512))),
            Change("twice the memory", _v1_steps(replace(conserve.V1, kv_tokens=86_000))),
        ),
        "Smaller steps change nothing.",
    ),
    *(
        Explanation(
            _named(E, "EcoServe", f"sustained rate, {load}"), numbers, _lending(load) + more, why
        )
        for load, numbers, more, why in (
            (
                "ShareGPT",
                (1, 2, 3, 4),
                (
                    *_few("ShareGPT"),
                    Change(
                        "lends to answers twice as long, 1 s for each that gives way, latency within 8 times",
                        _rates("ShareGPT", 1.0, tolerance=8.0, ecoserve=WIDE),
                    ),
                ),
                (
                    "Lending to longer answers and dear giving way carry this together. The ratio over "
                    "vLLM also needs a bound of latency at which many give way. Orca's is that of an "
                    "engine which serves one request at a time; here its memory holds six."
                ),
            ),
            (
                "Alpaca",
                (2, 3, 4),
                (),
                ("As with ShareGPT, lending to longer answers and dear giving way carry these."),
            ),
            (
                "BookCorpus",
                (1, 2, 3),
                (
                    *_few("BookCorpus"),
                    Change("4 s for each that gives way", _rates("BookCorpus", 4.0)),
                    Change(
                        "lent to longer ones, and 4 s", _rates("BookCorpus", 4.0, ecoserve=WIDE)
                    ),
                    Change("four times the memory", _rates("BookCorpus", memory=4)),
                    Change(
                        "latency within 8 times the unloaded", _rates("BookCorpus", tolerance=8.0)
                    ),
                    Change(
                        "lends so, 2 s, latency within 4 times, Orca one at a time",
                        _rates(
                            "BookCorpus",
                            2.0,
                            tolerance=4.0,
                            ecoserve=WIDE,
                            orca="orca:max_requests=1",
                        ),
                    ),
                    Change(
                        "all four changes below",
                        _rates(
                            "BookCorpus",
                            8.0,
                            memory=2,
                            tolerance=8.0,
                            ecoserve=WIDE,
                            orca="orca:max_requests=1",
                        ),
                    ),
                ),
                (
                    "Four changes together carry these, with Orca one at a time: lending to answers "
                    "twice as long, 8 s for each request that gives way, latency within 8 times the "
                    "unloaded, and twice the memory. With 14,600 tokens, six of these "
                    "requests fit at their full length and vLLM keeps about seven at work, so memory is "
                    "hardly short. The paper's 1.2 requests a second need more than the 12 GB it names. "
                    "8 s are less than it counts: at its 141 ms a token an answer takes 96 s, a fifth "
                    "of it in giving way. Its block counts at that rate would settle which of the four "
                    "it was."
                ),
            ),
        )
    ),
    Explanation(
        _named(E, "EcoServe", "its steps"),
        (1, 2, 3, 4, 5),
        (
            Change("8 requests a second", _steps(replace(ecoserve.SETUP, rate=8.0))),
            Change("lends to answers twice as long", _steps(ecoserve.SETUP, WIDE)),
            Change("lends so at 8 a second", _steps(replace(ecoserve.SETUP, rate=8.0), WIDE)),
            Change(
                "8 a second, 400 ms for each that gives way",
                _steps(replace(ecoserve.SETUP, rate=8.0, give_way_s=0.4)),
            ),
            Change(
                "8 a second, 400 ms, lends to answers twice as long",
                _steps(replace(ecoserve.SETUP, rate=8.0, give_way_s=0.4), WIDE),
            ),
            Change(
                "8 a second, 170 ms, lends to answers twice as long",
                _steps(replace(ecoserve.SETUP, rate=8.0, give_way_s=0.17), WIDE),
            ),
        ),
        (
            "The order of steps holds as published. The sign needs both an overloaded engine "
            "and dear giving way."
        ),
    ),
    Explanation(
        _named(B, "BROS", "ShareGPT"),
        (1, 5, 6),
        _loads(bros.SHAREGPT, 67, 0.055),
        (
            "Best-effort requests that wait carry the latency. With 64 outstanding nearly all "
            "of them run; with 128, earlier ones make a real-time request wait under vLLM, and "
            "not under BROS. Between 64 and 72, vLLM's first tokens in time fall from 9 % to "
            "none, so the ratio passes the paper's at 67. Every system keeps a pace of 0.2 s a "
            "token, because our device is three to four times faster than that."
        ),
    ),
    Explanation(
        _named(B, "BROS", "LMSYS"),
        (1, 5, 6),
        _loads(bros.LMSYS, 68, 0.06),
        ("The same things carry these as with ShareGPT."),
    ),
)
