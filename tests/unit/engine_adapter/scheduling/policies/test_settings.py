from __future__ import annotations

import pytest

from engine_adapter.scheduling.policies.settings import PolicySettings


@pytest.mark.parametrize(
    "name",
    [
        "checkpoint_free_share",
        "checkpoint_online_share",
        "ttft_planning_share",
        "batch_min_share",
        "flex_max_share",
    ],
)
@pytest.mark.parametrize("value", [-0.1, 1.1])
def test_shares_lie_between_0_and_1(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} is {value}; give a number between 0 and 1"):
        PolicySettings(**{name: value})  # type: ignore[arg-type]


def test_times_are_not_negative() -> None:
    with pytest.raises(ValueError, match="safepoint_interval_s must be >= 0"):
        PolicySettings(safepoint_interval_s=-1.0)
    with pytest.raises(ValueError, match="offline_step_factor > 0"):
        PolicySettings(offline_step_factor=0.0)
