"""What each level leaves of a step for offline work."""

from __future__ import annotations

from typing import Any

import pytest

from engine_adapter.scheduling.latency import PolynomialModel
from engine_adapter.scheduling.plan import StepPlan
from engine_adapter.scheduling.policies.conserve_v2 import ConserveV2
from engine_adapter.scheduling.policies.online_only import OnlineOnly
from engine_adapter.scheduling.policies.settings import Level, PolicySettings
from engine_adapter.scheduling.request import Phase


def planned(world: Any, model: PolynomialModel, level: Level) -> StepPlan:
    return ConserveV2(model, PolicySettings(level=level)).plan(world.snapshot())


@pytest.fixture
def busy(world: Any) -> Any:
    """Chats decode; offline prompts wait and offline requests decode."""
    for number in range(4):
        world.online(f"chat-{number}", phase=Phase.DECODE)
        world.offline(f"row-{number}", phase=Phase.DECODE)
        world.offline(f"next-{number}", prompt=400)
    return world


def test_each_level_takes_less_than_the_next(busy: Any, model: PolynomialModel) -> None:
    lengths = [planned(busy, model, level).predicted_s for level in Level]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1]


def test_invisible_costs_chat_a_twentieth(busy: Any, model: PolynomialModel) -> None:
    alone_s = OnlineOnly(model).plan(busy.snapshot()).predicted_s
    step = planned(busy, model, Level.INVISIBLE)
    assert len([rid for rid in step.decode if rid.startswith("chat-")]) == 4
    assert step.predicted_s <= 1.05 * alone_s + 1e-9


def test_invisible_adds_nothing_to_an_online_prompt(busy: Any, model: PolynomialModel) -> None:
    busy.online("new", prompt=60)
    step = planned(busy, model, Level.INVISIBLE)
    assert "new" in {chunk.rid for chunk in step.prefill}
    assert not [rid for rid in step.decode if rid.startswith("row-")]
    assert {chunk.rid for chunk in step.prefill} == {"new"}
