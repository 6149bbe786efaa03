"""The Triton kernels against their oracles: every case random, every byte compared.

Runs in the engine's venv with the real Triton: ``kernel_cases.py cpu`` through Triton's
interpreter (set TRITON_INTERPRET=1), ``kernel_cases.py cuda`` compiled.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "kernels"))

import torch

from coserve_kernels.cpu_mover import CpuMover
from coserve_kernels.launch import PageMover
from coserve_kernels.reference import gather_pages_reference, scatter_pages_reference
from coserve_kernels.staged_mover import CudaStreams, InOrder, StagedMover, another_stream, runs

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float8_e4m3fn": torch.float8_e4m3fn,
}


@dataclass(frozen=True)
class Case:
    dtype: str
    layers: int
    heads: int
    head_dim: int
    page_tokens: int
    num_tokens: int
    first_token: int
    window_pages: int
    contiguous_pages: bool


def draw(rng: random.Random) -> Case:
    page_tokens = rng.choice((1, 2, 5, 16, 16, 16))
    return Case(
        dtype=rng.choice(list(DTYPES)),
        layers=rng.choice((1, 2, 3)),
        heads=rng.choice((1, 2, 3)),
        head_dim=rng.choice((1, 3, 8, 64, 200)),
        page_tokens=page_tokens,
        num_tokens=rng.choice((0, 1, page_tokens - 1, page_tokens, page_tokens + 1, 37, 64)),
        first_token=rng.randrange(page_tokens),
        window_pages=rng.choice((1, 2, 64)),
        contiguous_pages=rng.random() < 0.5,
    )


def noise(rng: random.Random, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Random bytes: NaNs and infinities among them."""
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    size = (*shape[:-1], shape[-1] * dtype.itemsize)
    return torch.randint(0, 256, size, generator=generator, dtype=torch.uint8).view(dtype)


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    return bool(torch.equal(left.cpu().view(torch.uint8), right.cpu().view(torch.uint8)))


class Checked(InOrder):
    """Streams without a device that watch the order a device would be bound to.

    A staging buffer may be touched by one stream only after the point at which another stream was
    done with it; points in time are vector clocks.
    """

    def __init__(self) -> None:
        self.clocks = {name: {"compute": 0, "copy": 0} for name in ("compute", "copy")}
        self.last: dict[int, dict[str, int]] = {}
        self.handovers = 0
        self.mover: StagedMover | None = None

    def compute(self, *inputs: torch.Tensor) -> AbstractContextManager[Any]:
        return self._on("compute")

    def copy(self) -> AbstractContextManager[Any]:
        return self._on("copy")

    def mark(self) -> dict[str, int]:
        return dict(self.clocks[self.current])

    def after(self, mark: Any) -> None:
        mine = self.clocks[self.current]
        for name, at in (mark or {}).items():
            mine[name] = max(mine[name], at)

    @contextmanager
    def _on(self, name: str) -> Iterator[None]:
        self.current = name
        self.clocks[name][name] += 1
        yield
        assert self.mover is not None
        now, before = self.clocks[name], self.last.get(self.mover._turn)
        if before is not None:
            self.handovers += 1
            assert all(now[other] >= at for other, at in before.items()), "staging used too early"
        self.last[self.mover._turn] = dict(now)


def check_order(rng: random.Random) -> int:
    """Stores and loads of many windows, in random order; returns handovers that were checked."""
    planes = [torch.zeros(40, 1, 4) for _ in range(2)]
    pages = torch.zeros(20, 2, 1, 2, 1, 4)
    streams = Checked()
    mover = StagedMover(planes[:1], planes[1:], pages, streams, 2 * pages[0].numel() * 4)
    streams.mover = mover
    for _ in range(30):
        num_pages = rng.randrange(1, 9)
        slots = torch.tensor(rng.sample(range(40), 2 * num_pages))
        move = rng.choice((mover.store, mover.load))
        move(slots, rng.sample(range(20), num_pages))
    return streams.handovers


class Drawn:
    def __init__(self, handle: int) -> None:
        self.cuda_stream = handle


def check_streams() -> None:
    """Streams come in turn; the copy stream is none of those that are used already."""
    turn = (Drawn(i % 4) for i in range(1000))
    taken = [Drawn(0), None, Drawn(1)]
    assert another_stream(taken, lambda: next(turn)).cuda_stream == 2
    assert another_stream(taken, lambda: next(turn)).cuda_stream == 3
    assert another_stream(taken, lambda: next(turn)).cuda_stream == 2
    assert another_stream(taken, lambda: taken[0]) is taken[0], "only one: all in its order"


def check_warm() -> None:
    """Warming runs both kernels, waits, and leaves the KV as it was."""
    planes = [torch.randn(8, 1, 4) for _ in range(2)]
    before = [plane.clone() for plane in planes]
    pages = torch.zeros(2, 2, 1, 4, 1, 4)
    StagedMover(planes[:1], planes[1:], pages, InOrder()).warm()
    assert all(map(torch.equal, planes, before))
    assert torch.equal(pages[0, 0, 0, 3], planes[0][0])


def check_oracles(rng: random.Random) -> None:
    """The oracles themselves, against the definition, token by token."""
    page, num_tokens, first = 4, 10, 3
    keys, values = ([torch.randn(30, 2, 3) for _ in range(2)] for _ in range(2))
    pages = torch.zeros(6, 2, 2, page, 2, 3)
    slots, ids = rng.sample(range(30), num_tokens), [5, 0, 3]
    gather_pages_reference(keys, values, torch.tensor(slots), pages, ids)
    for side, planes in enumerate((keys, values)):
        for layer, plane in enumerate(planes):
            for t, slot in enumerate(slots):
                assert torch.equal(pages[ids[t // page], side, layer, t % page], plane[slot])
    back, untouched = rng.sample(range(30), num_tokens - first), keys[0].clone()
    scatter_pages_reference(pages, ids, keys, values, torch.tensor(back), first)
    for side, planes in enumerate((keys, values)):
        for layer, plane in enumerate(planes):
            for t, slot in enumerate(back):
                u = t + first
                assert torch.equal(plane[slot], pages[ids[u // page], side, layer, u % page])
    others = [slot for slot in range(30) if slot not in back]
    assert torch.equal(keys[0][others], untouched[others])


def movers(case: Case, sides: list[list[torch.Tensor]], pages: torch.Tensor) -> Iterator[PageMover]:
    """Every mover that can run where the buffers are."""
    keys, values = sides
    staging_bytes = case.window_pages * pages[0].numel() * pages.element_size()
    on_cuda = keys[0].device.type == "cuda"
    streams = CudaStreams(torch.cuda.Stream()) if on_cuda else InOrder()
    staged = StagedMover(keys, values, pages, streams, staging_bytes)
    assert staged.window_pages == min(case.window_pages, pages.shape[0])
    yield staged
    if not on_cuda:
        yield CpuMover(keys, values, pages)


def check(case: Case, rng: random.Random, device: str) -> None:
    """A store and a load by every mover, from the same bytes."""
    dtype, page = DTYPES[case.dtype], case.page_tokens
    num_slots, num_pages = case.num_tokens + 9, case.num_tokens // page + 7
    row = (case.heads, case.head_dim)
    oracle = [[noise(rng, (num_slots, *row), dtype) for _ in range(case.layers)] for _ in range(2)]
    sides = [[plane.to(device, copy=True) for plane in side] for side in oracle]
    start = noise(rng, (num_pages, 2, case.layers, page, *row), dtype)
    pages = start.clone().pin_memory() if device == "cuda" else start.clone()

    slots = torch.tensor(rng.sample(range(num_slots), case.num_tokens), dtype=torch.int64)
    ids = rng.sample(range(num_pages), num_pages)
    if case.contiguous_pages:
        ids.sort()
    stored = ids[: -(-case.num_tokens // page)]
    expected = start.clone()
    gather_pages_reference(oracle[0], oracle[1], slots, expected, stored)
    # Back to other slots, from inside the first page on.
    num_back = max(0, case.num_tokens - case.first_token)
    targets = torch.tensor(rng.sample(range(num_slots), num_back), dtype=torch.int64)
    before = [[plane.clone() for plane in side] for side in sides]
    scatter_pages_reference(expected, stored, oracle[0], oracle[1], targets, case.first_token)

    for mover in movers(case, sides, pages):
        for plane, fresh in zip(sides[0] + sides[1], before[0] + before[1], strict=True):
            plane.copy_(fresh)
        pages.copy_(start)
        mover.store(slots.to(device), stored)
        mover.wait()
        tail = case.num_tokens % page
        if tail:  # what lies behind the last token of a partly filled page is nobody's
            expected[stored[-1], :, :, tail:] = pages[stored[-1], :, :, tail:]
        assert same(pages, expected), f"gather by {type(mover).__name__}: {case}"
        mover.load(targets.to(device), stored, case.first_token)
        mover.wait()
        for plane, wanted in zip(sides[0] + sides[1], oracle[0] + oracle[1], strict=True):
            assert same(plane, wanted), f"scatter by {type(mover).__name__}: {case}"


def check_reuse(rng: random.Random, rounds: int = 20) -> None:
    """On a card: slots and pages are written anew as soon as a store or a load has returned.

    What the runtime does with what it has freed. A copy that runs too late, or too early, has the
    bytes of the wrong round.
    """
    passes = torch.cuda.Stream()
    row, page_tokens, num_slots, num_pages = (2, 64), 16, 4096, 128
    keys, values = (
        [torch.zeros(num_slots, *row, dtype=torch.bfloat16, device="cuda") for _ in range(2)]
        for _ in range(2)
    )
    shape = (num_pages, 2, 2, page_tokens, *row)
    pages = torch.zeros(shape, dtype=torch.bfloat16, pin_memory=True)
    mover = StagedMover(keys, values, pages, CudaStreams(passes), 8 * pages[0].numel() * 2)
    page_ids = list(range(num_pages))
    every = torch.arange(num_slots - 1, device="cuda")[: num_pages * page_tokens]
    for number in range(1, rounds + 1):
        rng.shuffle(page_ids)
        slots = every + number % 2  # at an aligned address, and at another
        with torch.cuda.stream(passes):
            for plane in (*keys, *values):
                plane.fill_(float(number))
        mover.store(slots, page_ids)
        with torch.cuda.stream(passes):  # the slots are somebody else's
            for plane in (*keys, *values):
                plane.fill_(-1.0)
        mover.load(slots, page_ids)
        mover.store(slots, page_ids)  # the pages, too
        mover.wait()
        for plane in (*keys, *values):
            assert bool((plane[slots] == number).all()), f"round {number}: loaded too early or late"
        assert bool((pages == number).all()), f"round {number}: stored too early or late"


def main() -> None:
    device, num_cases = sys.argv[1], int(sys.argv[2])
    rng = random.Random(20)
    assert runs([4, 5, 6, 2, 9, 10]) == [(0, 4, 3), (3, 2, 1), (4, 9, 2)]
    assert runs([]) == []
    check_oracles(rng)
    check_streams()
    check_warm()
    handovers = check_order(rng)
    fixed = [
        Case("bfloat16", 2, 2, 64, 16, tokens, first, 2, False)
        for tokens, first in ((0, 0), (1, 0), (16, 0), (17, 15), (64, 3))
    ]
    cases = fixed + [draw(rng) for _ in range(num_cases)]
    for case in cases:
        check(case, rng, device)
    if device == "cuda":
        check_reuse(rng)
    covered = {
        name: sorted({str(asdict(case)[name]) for case in cases}) for name in asdict(cases[0])
    }
    import triton

    print(
        "RESULTS "
        + json.dumps(
            {
                "cases": len(cases),
                "handovers": handovers,
                "triton": triton.__version__,
                "covered": covered,
            }
        )
    )


if __name__ == "__main__":
    main()
