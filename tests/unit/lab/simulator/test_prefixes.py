"""Prompts that begin alike: computed once, held together, given up when pages are short."""

from __future__ import annotations

import pytest

from engine_adapter.scheduling.latency import PolynomialModel
from engine_adapter.scheduling.plan import Chunk, StepPlan
from engine_adapter.scheduling.request import Request, RequestClass
from engine_adapter.scheduling.targets import Slo
from lab.simulator.engine import MemoryEngine
from lab.simulator.shape import EngineShape
from lab.simulator.times import ProfiledTimes


class Bench:
    """An engine of pages of one token, told step by step what to compute."""

    def __init__(self, model: PolynomialModel, pages: int = 1000) -> None:
        shape = EngineShape(total_pages=pages, page_tokens=1, total_slots=8)
        self.engine = MemoryEngine(shape, Slo(1.0, 0.1), ProfiledTimes(model))
        self.step = 0

    def submit(self, rid: str, prompt: int = 100, group: str = "g", tokens: int = 60) -> Request:
        request = Request(rid, RequestClass.OFFLINE, prompt, prompt, max_output_tokens=2)
        self.engine.submit(request, (group, tokens))
        return request

    def compute(self, *chunks: tuple[str, int], decode: tuple[str, ...] = ()) -> None:
        self.engine.snapshot()
        prefill = tuple(Chunk(*chunk) for chunk in chunks)
        self.engine.apply(StepPlan(self.step, decode=decode, prefill=prefill))
        self.engine.outcomes()
        self.step += 1

    def pages(self) -> tuple[int, int, int]:
        resources = self.engine.snapshot().resources
        assert (
            resources.free_pages + resources.evictable_pages + resources.locked_pages
            == resources.total_pages
        )
        return resources.free_pages, resources.evictable_pages, resources.locked_pages


def test_a_prefix_is_computed_once_and_shared(model: PolynomialModel) -> None:
    bench = Bench(model)
    first, second = bench.submit("a"), bench.submit("b")
    assert (first.cached_tokens, second.cached_tokens) == (0, 0)
    bench.compute(("a", 50))
    assert second.cached_tokens == 0  # the prefix is 60 tokens long
    bench.compute(("a", 50))
    assert second.cached_tokens == 60
    assert second.remaining_tokens == 40
    assert [(s.pages, s.holders) for s in first.shared] == [(60, 1)]
    bench.compute(("b", 40))
    assert (
        [(s.pages, s.holders) for s in first.shared]
        == [(60, 2)]
        == [(s.pages, s.holders) for s in second.shared]
    )
    assert (second.computed_tokens, second.device_pages) == (100, 100)
    assert bench.pages() == (1000 - 60 - 40 - 40, 0, 140)
    assert bench.engine.offline_tokens == 140


def test_the_last_one_leaves_it_evictable_and_a_later_one_hits_it(model: PolynomialModel) -> None:
    bench = Bench(model)
    bench.submit("a")
    bench.compute(("a", 100))
    bench.compute(decode=("a",))
    assert bench.pages() == (940, 60, 0)
    later = bench.submit("b")
    assert later.cached_tokens == 60
    bench.compute(("b", 40))
    assert bench.pages() == (900, 0, 100)


def test_pages_that_are_short_are_taken_from_what_nobody_uses(model: PolynomialModel) -> None:
    bench = Bench(model, pages=200)
    for rid, group in (("a", "g"), ("b", "h")):
        bench.submit(rid, group=group)
        bench.compute((rid, 100))
        bench.compute(decode=(rid,))
    assert bench.pages() == (80, 120, 0)
    waits = bench.submit("c", group="g")
    assert waits.cached_tokens == 60
    bench.submit("d", prompt=130, group="other", tokens=10)
    bench.compute(("d", 130))
    assert waits.cached_tokens == 0  # g was used least recently
    assert bench.submit("e", group="h").cached_tokens == 60
    assert bench.pages() == (10, 60, 130)


def test_a_group_has_one_length_and_short_prompts_stand_outside(model: PolynomialModel) -> None:
    bench = Bench(model)
    bench.submit("a")
    short = bench.submit("b", prompt=60)
    bench.compute(("a", 100))
    assert short.cached_tokens == 0
    with pytest.raises(ValueError, match="shares 60 tokens, not 50"):
        bench.submit("c", tokens=50)
