from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from engine_adapter.core.slo import Slo
from engine_adapter.latency.polynomial import PolynomialModel
from engine_adapter.policies.parts.budget import (
    TypicalPrompt,
    beside_online_budget_s,
    offline_only_budget_s,
)

if TYPE_CHECKING:
    from tests.unit.engine_adapter.conftest import World


def test_the_typical_prompt_is_a_mean_of_what_arrived(world: World) -> None:
    typical = TypicalPrompt(256)
    assert typical.tokens == 256
    world.online("a", prompt=100)
    typical.update(world.snapshot())
    typical.update(world.snapshot())  # seen already
    assert typical.tokens == 100
    world.online("b", prompt=200)
    typical.update(world.snapshot())
    assert typical.tokens == 150


@pytest.mark.parametrize(
    ("stoppable", "tokens", "expected_s"),
    [(True, 90, 2.0), (False, 90, 0.9), (False, 2000, 0.05)],
)
def test_a_step_that_cannot_be_stopped_leaves_room_for_a_prompt(
    world: World, model: PolynomialModel, stoppable: bool, tokens: int, expected_s: float
) -> None:
    world.slo = Slo(ttft_s=1.0, tbt_s=0.05)
    budget_s = offline_only_budget_s(
        world.snapshot(), model, stoppable=stoppable, factor=2.0, typical_online_tokens=tokens
    )
    assert budget_s == pytest.approx(expected_s)


def test_a_loose_tbt_target_does_not_take_the_arrival_its_time() -> None:
    assert beside_online_budget_s(Slo(ttft_s=1.0, tbt_s=0.1)) == 0.1
    assert beside_online_budget_s(Slo(ttft_s=1.0, tbt_s=0.9)) == 0.5
