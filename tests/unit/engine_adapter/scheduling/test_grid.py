"""The grid of steps a profile is measured from."""

from __future__ import annotations

import pytest

from engine_adapter.scheduling.fit import Cell, Sample, armed_cells, fit_model, make_grid
from engine_adapter.scheduling.latency import Coefficients
from engine_adapter.scheduling.plan import SafepointMode, StepKind

LINEAR = Coefficients(2e-3, 1e-6, 3e-5, 0.0, 4e-3, 0.06, 0.05)


@pytest.mark.parametrize("pool_tokens", [1024, 4096, 65536])
@pytest.mark.parametrize("slots", [4, 64])
def test_every_cell_can_be_held(pool_tokens: int, slots: int) -> None:
    for cell in make_grid(512, pool_tokens, slots, 8192):
        assert 0 < cell.num_tokens <= pool_tokens // 2
        assert 0 < cell.num_requests <= slots
        assert all(p > 0 and c >= 0 for p, c in cell.chunks)
        assert all(c > 0 for c in cell.decode)


def test_no_cell_outgrows_the_model_or_the_chunk() -> None:
    for cell in make_grid(128, 65536, 64, 1024):
        assert all(c < 1024 for c in cell.decode)
        assert all(p <= 128 and p + c < 1024 for p, c in cell.chunks)


def test_long_requests_are_measured_where_there_is_room() -> None:
    """Of every kind of step, and no chunk larger than a processor computes at once."""
    kinds = {
        Sample(cell.decode, cell.chunks, 1.0).load().kind
        for cell in make_grid(512, 16384, 24, 8192)
        if max(*cell.decode, *(c for _, c in cell.chunks), 0, 0) > 2048
    }
    assert kinds == {StepKind.DECODE, StepKind.PREFILL, StepKind.MIXED}
    assert all(p <= 512 for cell in make_grid(512, 16384, 24, 8192) for p, _ in cell.chunks)


def test_an_accelerator_is_measured_with_its_own_sizes() -> None:
    cells = make_grid(8192, 400_000, 256, 131_072)
    assert max(p for cell in cells for p, _ in cell.chunks) == 8192
    assert max(len(cell.decode) for cell in cells) == 256
    assert max(cell.num_tokens for cell in cells) <= 200_000


def test_a_small_pool_still_tells_requests_from_context() -> None:
    """Requests of several lengths at every count: a fit finds what the steps really cost."""
    cells = make_grid(512, 4096, 24, 8192)
    lengths: dict[int, set[int]] = {}
    for cell in cells:
        if cell.decode and not cell.chunks:
            lengths.setdefault(len(cell.decode), set()).add(cell.decode[0])
    assert [len(lengths[n]) >= 2 for n in (1, 2, 4, 8, 16)] == [True] * 5
    model = fit_model([Sample(c.decode, c.chunks, _truth(c)) for c in cells])
    wanted = Cell(decode=(1700, 1700, 1600))
    load = Sample(wanted.decode, wanted.chunks, 1.0).load()
    assert load.kind is StepKind.DECODE
    assert model.predict(load) == pytest.approx(_truth(wanted), rel=0.02)


def _truth(cell: Cell) -> float:
    regressors = Sample(cell.decode, cell.chunks, 1.0).load().regressors()
    k = LINEAR
    order = [k.k_token, k.k_attention, k.k_context, k.k_square, k.k_request, k.k_batch]
    order += [k.k_constant, k.k_hinge]
    return sum(a * b for a, b in zip(order, regressors, strict=True))


def test_what_leaves_its_graph_when_it_is_armed_is_measured_so_too() -> None:
    mixed, prefill = Cell((64,), ((16, 0),)), Cell((), ((16, 0),))
    cells = [Cell((64,)), prefill, mixed]
    assert armed_cells(cells, ()) == []
    assert armed_cells(cells, {SafepointMode.DROP}) == [Cell((64,), ((16, 0),), armed=True)]
    both = armed_cells(cells, {SafepointMode.DROP, SafepointMode.ABORT})
    assert [(cell.decode, cell.armed) for cell in both] == [((), True), ((64,), True)]
