"""Why figures are not near: one thing of the set-up changed, and the same systems run again."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from bench.reproduce import bros, conserve, ecoserve
from bench.reproduce.figure import Cell, Change, Experiment, Explanation
from bench.reproduce.world import (
    VARIANTS,
    Setup,
    compare,
    measure,
    play,
    sustained_rate,
    unloaded,
)
from engine_adapter.scheduling.builder import PlanBuilder
from engine_adapter.scheduling.latency import LatencyModel
from engine_adapter.scheduling.memory import VictimPool
from engine_adapter.scheduling.policies.sarathi_p import SarathiP
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.queue import RowsByRole

LARGE = 8192
WIDE = "ecoserve:buffer=-0.5"
"""Guests of up to three quarters of a host's answer, not of 35 %."""


class Discarding(SarathiP):
    """Each ``every``-th online arrival throws the KV of a share of the offline requests away."""

    share = 1.0
    every = 1

    def __init__(self, model: LatencyModel, settings: PolicySettings | None = None) -> None:
        """Nobody has arrived."""
        super().__init__(model, settings)
        self._newest = -1
        self._arrivals = 0
        self._leaving: set[str] = set()

    def _fill(
        self, builder: PlanBuilder, rows: RowsByRole, victims: VictimPool, mixes: bool
    ) -> None:
        arrived = max((r.sequence for r in [*rows.online, *rows.online_waiting]), default=-1)
        if arrived > self._newest:
            self._newest = arrived
            self._arrivals += 1
            number = math.ceil(self.share * len(rows.offline))
            if self._arrivals % self.every:
                number = 0
            self._leaving.update(row.rid for row in rows.offline[len(rows.offline) - number :])
        self._leaving &= {row.rid for row in rows.offline}
        for row in rows.offline:
            if row.rid not in self._leaving or row.rid in builder.taken:
                continue
            if row.in_flight:
                builder.rest(row)
            else:
                builder.retract(row)
        super()._fill(builder, rows, victims, mixes)


VARIANTS["discarding"] = Discarding


def _named(experiments: tuple[Experiment, ...], paper: str, name: str) -> Experiment:
    return next(one for one in experiments if (one.paper, one.name) == (paper, name))


# --- ConServe v2: what SP does


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
            "every second arrival costs one", _beside(setup, "discarding:share=0.01,every=2", 2048)
        ),
        Change("each costs one, and 8,192 tokens", _beside(setup, "discarding:share=0.01", LARGE)),
    )


def _scaled(setup: Setup) -> Callable[[int], Cell]:
    """Attainment at 1 and 1.5 times the targets."""

    def run(seed: int) -> Cell:
        found = {}
        for scale in (1.0, 1.5):
            cell = compare(setup, {"C": conserve.SYSTEMS["C"]}, seed, scale, (1.0, scale))
            keys = (f"ttft_in_time@{scale:g}", f"tbt_in_time@{scale:g}")
            found[f"C@{scale:g}"] = cell["C"] | {"least": min(cell["C"][key] for key in keys)}
        return found

    return run


def _large_ablation(seed: int) -> Cell:
    systems = {
        "SP": ("sarathi_p", PolicySettings(token_budget=LARGE)),
        "+SLO": ("conserve_v2", PolicySettings(safepoints=False, checkpoints=False)),
    }
    return compare(replace(conserve.GAMMA, chunk_tokens=LARGE), systems, seed)


# --- ConServe v1: what vLLM++ does

UNCUT = replace(conserve.V1, chunk_tokens=20_000)


def _v1(setup: Setup) -> Callable[[int], Cell]:
    return lambda seed: compare(setup, conserve.V1_SYSTEMS, seed)


def _v1_steps(setup: Setup) -> Callable[[int], Cell]:
    systems = {
        "vLLM++": ("non_preemptive", None),
        "+scheduler": ("conserve_v1", PolicySettings(checkpoints=False)),
    }
    return lambda seed: compare(setup, systems, seed)


# --- EcoServe


def _rates(load: str, policy: str, give_way_s: float = 0.0) -> Callable[[int], Cell]:
    setup, most = ecoserve.LOADS[load]
    setup = replace(setup, give_way_s=give_way_s)
    names = {"ecoserve": policy} | {n: n for n in ("fastgen", "vllm", "orca", "multires")}

    def run(seed: int) -> Cell:
        quiet = unloaded(setup, seed)
        return {
            name: {"rate": sustained_rate(setup, made, seed, most, quiet)}
            for name, made in names.items()
        }

    return run


def _lending(load: str) -> tuple[Change, ...]:
    return (
        Change("lends to answers twice as long", _rates(load, WIDE)),
        Change("400 ms for each that gives way", _rates(load, "ecoserve", 0.4)),
        Change("both", _rates(load, WIDE, 0.4)),
    )


def _steps(setup: Setup, full: str = "ecoserve") -> Callable[[int], Cell]:
    def run(seed: int) -> Cell:
        slo = unloaded(ecoserve.SETUP, seed).slo
        names = {name: name for name in ("vllm", *ecoserve.STEPS)} | {"ecoserve": full}
        return {name: measure(play(setup, made, slo, seed), slo) for name, made in names.items()}

    return run


# --- BROS


def _bros(setup: Setup) -> Callable[[int], Cell]:
    return lambda seed: {
        name: measure(play(setup, name, bros.SLO, seed), bros.SLO, (1.0,)) for name in bros.SYSTEMS
    }


def _loads(setup: Setup) -> tuple[Change, ...]:
    slow = replace(setup, device="a100-qwen3-32b-tp2")
    return (
        Change("15 requests a second", _bros(replace(setup, rate=15.0))),
        Change("20", _bros(replace(setup, rate=20.0))),
        Change("Qwen3-32B on two A100s", _bros(slow)),
        Change("the same, 13 requests a second", _bros(replace(slow, rate=13.0))),
    )


C, E, B = conserve.EXPERIMENTS, ecoserve.EXPERIMENTS, bros.EXPERIMENTS
V1, V2 = "ConServe v1", "ConServe v2"
EXPLANATIONS = (
    Explanation(
        _named(C, V2, "rates"),
        (4, 8, 9),
        _thrown_away(conserve.GAMMA),
        (
            "Two things of SP carry these figures. A step of 8,192 tokens makes its gaps as long "
            "as the paper's. One document's KV lost for each arrival brings NP and ConServe as "
            "far ahead of it; ours loses next to none."
        ),
    ),
    Explanation(
        _named(C, V2, "scale of the targets"),
        (1, 2),
        (
            Change("step times that vary by 10 %", _scaled(replace(conserve.GAMMA, noise=0.1))),
            Change("lengths of BurstGPT", _scaled(conserve.BURST_8B)),
            Change("4 requests a second", _scaled(replace(conserve.GAMMA, rate=4.0))),
        ),
        (
            "At 1 the bound is a matter of spread: a load without any has a P99 hardly above its "
            "mean, so every delay is a miss. With BurstGPT's lengths it is met. At 1.5 none of "
            "these brings it: it is half a point short before, and stays short."
        ),
    ),
    Explanation(
        _named(C, V2, "variation of arrivals"),
        (3,),
        _thrown_away(replace(conserve.GAMMA, cv=2.0)),
        "Lost documents and longer steps move it together, to half of the paper's figure.",
    ),
    Explanation(
        _named(C, V2, "70B, mixed documents"),
        (4, 5, 6, 7),
        _thrown_away(conserve.BURST_70B),
        (
            "One document lost for every second arrival carries the offline tokens, and steps of "
            "8,192 tokens the first tokens and gaps. No change carries all four: one document an "
            "arrival stops SP altogether here."
        ),
    ),
    Explanation(
        _named(C, V2, "8B, BurstGPT"),
        (2,),
        _thrown_away(conserve.BURST_8B),
        (
            "Lost documents and longer steps bring it to 57 % of the paper's figure together; "
            "neither does alone."
        ),
    ),
    Explanation(
        _named(C, V2, "ablation"),
        (1,),
        (Change("steps of 8,192 tokens", _large_ablation),),
        "Longer steps of SP bring it to 60 % of the paper's figure. What the rest is was not found.",
    ),
    Explanation(
        _named(C, V1, "rates and variation"),
        (6, 7, 8, 9),
        (
            Change("prompts uncut", _v1(UNCUT)),
            Change("4 requests a second", _v1(replace(conserve.V1, rate=4.0))),
            Change("5 a second", _v1(replace(conserve.V1, rate=5.0))),
            Change("half the memory", _v1(replace(conserve.V1, kv_tokens=21_500))),
        ),
        (
            "Load moves first tokens by half, and uncut prompts or less memory hardly. None of "
            "these brings the paper's 60 to 84 times, and none its pace of 25 times."
        ),
    ),
    Explanation(
        _named(C, V1, "ablation"),
        (2,),
        (
            Change("steps of 512 tokens", _v1_steps(replace(conserve.V1, chunk_tokens=512))),
            Change("twice the memory", _v1_steps(replace(conserve.V1, kv_tokens=86_000))),
        ),
        "Twice the memory brings it near, by a little; smaller steps do nothing.",
    ),
    *(
        Explanation(_named(E, "EcoServe", f"sustained rate, {load}"), numbers, _lending(load), why)
        for load, numbers, why in (
            (
                "ShareGPT",
                (1, 2, 3, 4),
                (
                    "What an answer may be lent and what giving way costs carry this together. Lent to "
                    "answers of three quarters of a host's length instead of 35 %, EcoServe is level with "
                    "both. If each request that gives way costs 400 ms too, it is ahead by two fifths, "
                    "near the paper for FastGen. Orca's ratio moves by a third only."
                ),
            ),
            (
                "Alpaca",
                (2, 4),
                (
                    "Lent to longer answers, or with dear giving way, EcoServe is near the paper; with "
                    "both it is ahead of FastGen."
                ),
            ),
            (
                "BookCorpus",
                (1, 2, 3),
                (
                    "Neither carries it here, nor both: level with FastGen at best, and Orca's ratio "
                    "hardly moves. What does was not found."
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
                "that, and lends so",
                _steps(replace(ecoserve.SETUP, rate=8.0, give_way_s=0.4), WIDE),
            ),
        ),
        (
            "The order of steps holds as published; the sign needs both an overloaded engine and "
            "dear giving way: then each step gains as much as in the paper, the first more. "
            "Lending more alone brings the last step level with vLLM."
        ),
    ),
    Explanation(
        _named(B, "BROS", "ShareGPT"),
        (1, 5, 6),
        _loads(bros.SHAREGPT),
        (
            "A slower model brings first tokens to the paper's figure; it or half more load "
            "brings three fifths of the latency. More load than that is overload, where all of it "
            "turns round."
        ),
    ),
    Explanation(
        _named(B, "BROS", "LMSYS"),
        (1, 5, 6),
        _loads(bros.LMSYS),
        (
            "Twice the load brings latency to three fifths of the paper's, and first tokens to "
            "half. Nothing here makes anyone miss 0.2 s a token."
        ),
    ),
)
