from __future__ import annotations

import pytest

from engine_adapter.scheduling.latency import Coefficients, PolynomialModel, StepLoad
from engine_adapter.scheduling.level import CalibratedModel, DriftTracker
from engine_adapter.scheduling.plan import Chunk, FinishedStep, Outcome, StepKind, StepPlan

PROFILED = PolynomialModel(
    decode=Coefficients(0.01, 0, 1e-5, 0, 0, 0.07),
    prefill=Coefficients(0.003, 1e-6, 0, 0, 0, 0.1),
    mixed=Coefficients(0.003, 1e-6, 0, 0, 0.004, 0.12),
)
CHUNK = (Chunk("b", 1),)
STEPS = {
    StepKind.DECODE: (StepPlan(1, decode=("a",), predicted_s=0.1), 0.11),
    StepKind.PREFILL: (StepPlan(1, prefill=CHUNK, predicted_s=0.1), 0.12),
    StepKind.MIXED: (StepPlan(1, decode=("a",), prefill=CHUNK, predicted_s=0.1), 0.13),
}


@pytest.fixture
def calibrated() -> CalibratedModel:
    """Decode steps take 1.1 times, prefill 1.2 times, mixed 1.3 times what was profiled."""
    drift = DriftTracker(level_weight=1.0)
    for plan, measured_s in STEPS.values():
        drift.observe(FinishedStep(plan, Outcome(1, measured_s)))
    return CalibratedModel(PROFILED, drift)


def load(decode_rows: int, chunk_tokens: int) -> StepLoad:
    made = StepLoad()
    for _ in range(decode_rows):
        made.add_decode(300)
    if chunk_tokens:
        made.add_chunk(chunk_tokens, 64)
    return made


@pytest.mark.parametrize(("decode_rows", "chunk_tokens", "level"), [
    (3, 0, 1.1), (0, 48, 1.2), (3, 48, 1.3),
])  # fmt: skip
def test_each_kind_of_step_has_its_own_level(
    calibrated: CalibratedModel, decode_rows: int, chunk_tokens: int, level: float
) -> None:
    step = load(decode_rows, chunk_tokens)
    assert calibrated.level(step.kind) == pytest.approx(level)
    assert calibrated.predict(step) == pytest.approx(level * PROFILED.predict(step))
    joined = step.copy()
    joined.add_decode(90)
    with_one_more = calibrated.predict_with_decode(step, 90)
    assert with_one_more == pytest.approx(calibrated.predict(joined))


@pytest.mark.parametrize("decode_rows", [0, 2])
def test_as_many_prompt_tokens_fit_as_predictions_say(
    calibrated: CalibratedModel, decode_rows: int
) -> None:
    beside = load(decode_rows, 0)
    fits = calibrated.max_tokens(beside, 100, 10_000, 0.5)
    assert 0 < fits < 10_000
    for num_tokens, within in ((fits, True), (fits + 1, False)):
        step = beside.copy()
        step.add_chunk(num_tokens, 100)
        assert (calibrated.predict(step) <= 0.5 * (1 + 1e-9)) is within
