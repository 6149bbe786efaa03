"""Routing of chat over four engines: prefix and load against fewest-open and round-robin.

Conversations of several turns come at random times; each turn's prompt is all that was said before.
One in ten begins with one of twelve shared documents, one in forty with a document of its own.
Engines are simulated: a step takes what the table of an H200 with Llama 3.1 8B says, prompts go in
chunks of 2,048 tokens, the KV cache forgets the oldest conversation first. Two gateways share the
load; each knows of the other's calls what an engine said up to five seconds ago. Every figure is
the median over seeds that no constant was chosen on (those are 100 to 104).

    python -m bench.routing [--seeds 5] [--conversations-per-s 3]

Quoted in docs/engine.md.
"""

from __future__ import annotations

import heapq
import random
import sys
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

from bench.report import at_most, at_share, option_parser, report
from engine_adapter.client import routing
from engine_adapter.client.routing import BLOCK_TOKENS, PrefixRouting, Prompt, drawn_two
from engine_adapter.gpu_tables.gpu_table import (
    CUDA_GRAPH_BATCH_SIZES,
    DEFAULT_HOST_S,
    GpuTimes,
    load_gpu_table,
)

TABLE = "h200-llama-3.1-8b"
NUM_ENGINES = 4
NUM_GATEWAYS = 2
REPORT_S = 5.0
CHUNK_TOKENS = 2048
MAX_RUNNING = 256
SYSTEM_TOKENS = 512
NUM_DOCUMENTS = 12
DOCUMENT_TOKENS = 6144
KV_TOKENS = 300_000
"""Of each engine: the table's pool, with offline work in the other half of it."""

MEASURED_S = 240.0
WARM_S = 60.0


@dataclass
class Turn:
    """One request."""

    conversation: int
    number: int
    prompt_tokens: int
    answer_tokens: int
    gateway: int
    document: int
    at_s: float = 0.0
    engine: int = -1
    left_tokens: int = 0
    made_tokens: int = 0
    cached_tokens: int = 0
    ttft_s: float = 0.0

    @property
    def prompt(self) -> Prompt:
        """As a gateway sees it: the system's words, a document, the conversation's own words."""
        num_shared = shared_tokens(self.document) // BLOCK_TOKENS
        shared = range(self.document * 1000, self.document * 1000 + num_shared)
        own = range(self.prompt_tokens // BLOCK_TOKENS - num_shared)
        blocks = (*shared, *((self.conversation + 1) * 100_000 + i for i in own))
        return Prompt(blocks, self.conversation * 2654435761 % 2**32, self.prompt_tokens)


def shared_tokens(document: int) -> int:
    """What conversations that begin alike share; document 0 is none."""
    return SYSTEM_TOKENS + (DOCUMENT_TOKENS if document else 0)


class Engine:
    """Continuous batching: one step after the other, all decodes and a chunk of prompts in each."""

    def __init__(self, times: GpuTimes) -> None:
        self._times = times
        self.waiting: deque[Turn] = deque()
        self.running: list[Turn] = []
        self.cache: OrderedDict[int, int] = OrderedDict()
        self.busy = False
        self._chunks: list[tuple[Turn, int]] = []

    def add(self, turn: Turn) -> None:
        shared = self.cache.get(~turn.document, 0)
        cached = self.cache.get(turn.conversation, 0) or shared
        turn.cached_tokens = min(cached, turn.prompt_tokens - 1)
        turn.left_tokens = turn.prompt_tokens - turn.cached_tokens
        self.waiting.append(turn)

    def begin_step(self) -> float:
        """Its seconds; 0 where there is nothing to do."""
        room, self._chunks = CHUNK_TOKENS, []
        for turn in self.waiting:
            if not room or len(self.running) + len(self._chunks) >= MAX_RUNNING:
                break
            num = min(room, turn.left_tokens)
            self._chunks.append((turn, num))
            room -= num
        if not self._chunks and not self.running:
            return 0.0
        shapes = [(num, turn.prompt_tokens - turn.left_tokens) for turn, num in self._chunks]
        context = sum(turn.prompt_tokens + turn.made_tokens for turn in self.running)
        return self._times.step_s(shapes, len(self.running), context)

    def end_step(self, now_s: float) -> list[Turn]:
        """The turns that are over."""
        over = []
        for turn in self.running:
            turn.made_tokens += 1
            if turn.made_tokens >= turn.answer_tokens:
                over.append(turn)
        begun = []
        for turn, num in self._chunks:
            turn.left_tokens -= num
            if not turn.left_tokens:
                turn.made_tokens, turn.ttft_s = 1, now_s - turn.at_s
                begun.append(turn)
                self.waiting.popleft()
        self.running = [turn for turn in self.running if turn.made_tokens < turn.answer_tokens]
        self.running += begun
        for turn in [*over, *begun]:
            self._remember(turn)
        return over

    def _remember(self, turn: Turn) -> None:
        shared = shared_tokens(turn.document)
        self.cache[turn.conversation] = turn.prompt_tokens + turn.made_tokens
        self.cache[~turn.document] = shared
        self.cache.move_to_end(turn.conversation)
        self.cache.move_to_end(~turn.document)
        held = sum(self.cache.values())
        while held > KV_TOKENS and len(self.cache) > 1:
            held -= self.cache.popitem(last=False)[1]


@dataclass
class View:
    """An engine as one gateway knows it."""

    url: str
    open: dict[int, Turn] = field(default_factory=dict)
    reported_others: int = 0
    cache_tokens: int = KV_TOKENS

    @property
    def num_calls(self) -> int:
        return len(self.open) + self.reported_others

    @property
    def waiting_tokens(self) -> int:
        return sum(turn.left_tokens for turn in self.open.values() if not turn.ttft_s)


class Routing(Protocol):
    """What is compared."""

    def choose(self, able: Sequence[View], prompt: Prompt) -> tuple[View, int]: ...


class RoundRobin:
    """One after the other."""

    def __init__(self) -> None:
        self._num = 0

    def choose(self, able: Sequence[View], prompt: Prompt) -> tuple[View, int]:
        self._num += 1
        return able[self._num % len(able)], prompt.num_tokens


class FewestOpen:
    """What the gateway did before: the engine with the fewest calls of its own, then by turns."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}
        self._num = 0

    def choose(self, able: Sequence[View], prompt: Prompt) -> tuple[View, int]:
        chosen = min(able, key=lambda one: (len(one.open), self._turns.get(one.url, 0)))
        self._num += 1
        self._turns[chosen.url] = self._num
        return chosen, prompt.num_tokens


class LoadAlone(PrefixRouting):
    """Without what was sent before: the lighter of the two drawn."""

    def _note(self, chosen: routing.Choosable, prompt: Prompt) -> None:
        """Nothing is remembered."""


class PrefixAlone:
    """A conversation stays where it is drawn to, whatever waits there."""

    def choose(self, able: Sequence[View], prompt: Prompt) -> tuple[View, int]:
        return drawn_two(able, prompt.head)[0], prompt.num_tokens


ROUTINGS: dict[str, type[Routing]] = {
    "prefix_and_load": PrefixRouting,
    "load_alone": LoadAlone,
    "prefix_alone": PrefixAlone,
    "fewest_open": FewestOpen,
    "round_robin": RoundRobin,
}


def conversations(seed: int, per_s: float) -> list[list[tuple[float, Turn]]]:
    """Each a list of turns, with the pause before each; the first pause is from the start."""
    generator = random.Random(seed)
    at_s = 0.0
    found: list[list[tuple[float, Turn]]] = []
    while at_s < MEASURED_S:
        at_s += generator.expovariate(per_s)
        document = generator.randrange(NUM_DOCUMENTS) + 1 if generator.random() < 0.1 else 0
        said = shared_tokens(document)
        turns = []
        for number in range(min(12, 1 + int(generator.expovariate(1 / 4)))):
            # One in forty begins with a document.
            long = number == 0 and generator.random() < 1 / 40
            said += int(generator.lognormvariate(9.2, 0.5) if long else
                        generator.lognormvariate(5.0, 0.9))  # fmt: skip
            said = min(said, 30_000)
            answer = max(8, min(1000, int(generator.lognormvariate(5.3, 0.6))))
            pause_s = at_s if number == 0 else generator.expovariate(1 / 12)
            gateway = generator.randrange(NUM_GATEWAYS)
            turns.append((pause_s, Turn(len(found), number, said, answer, gateway, document)))
            said += answer
        found.append(turns)
    return found


def run(name: str, seed: int, per_s: float) -> list[Turn]:
    """The turns that came after the first minute."""
    table = load_gpu_table(TABLE)
    times = GpuTimes(table, DEFAULT_HOST_S, CUDA_GRAPH_BATCH_SIZES)
    engines = [Engine(times) for _ in range(NUM_ENGINES)]
    views = [[View(f"http://engine-{i}") for i in range(NUM_ENGINES)] for _ in range(NUM_GATEWAYS)]
    routings = [ROUTINGS[name]() for _ in range(NUM_GATEWAYS)]
    talks = conversations(seed, per_s)
    heap: list[tuple[float, int, str, int]] = []
    for number, talk in enumerate(talks):
        heapq.heappush(heap, (talk[0][0], len(heap), "turn", number))
    heapq.heappush(heap, (REPORT_S, len(heap), "report", 0))
    next_turn = [0] * len(talks)
    tie, done = len(heap), []

    def push(at_s: float, what: str, which: int) -> None:
        nonlocal tie
        tie += 1
        heapq.heappush(heap, (at_s, tie, what, which))

    while heap and (now_s := heap[0][0]) < MEASURED_S:
        _, _, what, which = heapq.heappop(heap)
        if what == "report":
            for mine in views:
                for view, engine in zip(mine, engines, strict=True):
                    view.reported_others = (
                        len(engine.waiting) + len(engine.running) - len(view.open)
                    )
            push(now_s + REPORT_S, "report", 0)
            continue
        if what == "turn":
            turn = talks[which][next_turn[which]][1]
            next_turn[which] += 1
            turn.at_s = now_s
            chosen, _ = routings[turn.gateway].choose(views[turn.gateway], turn.prompt)
            turn.engine = int(chosen.url.rpartition("-")[2])
            chosen.open[id(turn)] = turn
            engines[turn.engine].add(turn)
            which = turn.engine
        else:
            for turn in engines[which].end_step(now_s):
                del views[turn.gateway][which].open[id(turn)]
                done.append(turn)
                talk = talks[turn.conversation]
                if next_turn[turn.conversation] < len(talk):
                    pause_s = talk[next_turn[turn.conversation]][0]
                    push(now_s + pause_s, "turn", turn.conversation)
            engines[which].busy = False
        if not engines[which].busy and (step_s := engines[which].begin_step()):
            engines[which].busy = True
            push(now_s + step_s, "step", which)
    return [turn for turn in done if turn.at_s >= WARM_S]


def figures(turns: list[Turn]) -> dict[str, float]:
    ttfts = [turn.ttft_s * 1000 for turn in turns]
    return {
        "ttft_p50_ms": at_share(ttfts, 0.5),
        "ttft_p99_ms": at_share(ttfts, 0.99),
        "cached_share": sum(t.cached_tokens for t in turns) / sum(t.prompt_tokens for t in turns),
    }


def main() -> int:
    parser = option_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--conversations-per-s", type=float, default=8.0)
    options = parser.parse_args()
    measured: dict[str, float] = {"conversations_per_s": options.conversations_per_s}
    for name in ROUTINGS:
        runs = [
            figures(run(name, seed, options.conversations_per_s)) for seed in range(options.seeds)
        ]
        for figure in runs[0]:
            measured[f"{name}_{figure}"] = round(median(one[figure] for one in runs), 3)
    best = min(measured["fewest_open_ttft_p99_ms"], measured["round_robin_ttft_p99_ms"])
    measured["ttft_p99_of_best_other"] = round(measured["prefix_and_load_ttft_p99_ms"] / best, 3)
    return report("routing", measured, {"ttft_p99_of_best_other": at_most(0.7)})


if __name__ == "__main__":
    sys.exit(main())
