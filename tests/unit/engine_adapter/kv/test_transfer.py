from __future__ import annotations

import pytest

from engine_adapter.kv.transfer import TransferBudget


def test_a_share_of_the_step_is_filled_with_copies() -> None:
    budget = TransferBudget(page_bytes=1000, bytes_per_s=1e6, share=0.5)
    assert budget.pages_beside(0.1) == 50
    assert budget.pages_beside(0.0) == 1


def test_the_bandwidth_follows_what_was_measured() -> None:
    budget = TransferBudget(page_bytes=1000, bytes_per_s=1e6, weight=0.5)
    budget.measured(10, 0.02)  # half a megabyte per second
    assert budget.bytes_per_s == pytest.approx(0.75e6)
    budget.measured(0, 1.0)
    assert budget.bytes_per_s == pytest.approx(0.75e6)


@pytest.mark.parametrize(("size", "rate"), [(0, 1.0), (1, 0.0)])
def test_sizes_and_rates_are_positive(size: int, rate: float) -> None:
    with pytest.raises(ValueError, match="bytes per second"):
        TransferBudget(size, rate)
