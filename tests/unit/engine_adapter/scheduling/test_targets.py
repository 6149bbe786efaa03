from __future__ import annotations

import math

import pytest

from engine_adapter.scheduling.targets import Slo


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize("name", ["ttft_s", "tbt_s"])
def test_a_target_must_be_a_positive_number_of_seconds(name: str, bad: float) -> None:
    targets = {"ttft_s": 1.0, "tbt_s": 0.1, name: bad}
    with pytest.raises(ValueError, match=f"SLO {name} .* give a positive number of seconds"):
        Slo(**targets)


def test_scaling_loosens_both_targets() -> None:
    scaled = Slo(1.0, 0.1).scaled(1.5)
    assert (scaled.ttft_s, scaled.tbt_s) == pytest.approx((1.5, 0.15))
