from __future__ import annotations

from engine_adapter.scheduling.latency import StepLoad
from engine_adapter.scheduling.plan import StepKind


def test_sums_of_a_mixed_step() -> None:
    load = StepLoad()
    load.add_decode(9)  # p=1, c=9
    load.add_chunk(4, 6)  # p=4, c=6
    #        P  A           S        Q            R  B  1
    assert load.regressors() == (5, 10 + 4 * 10, 10 + 10, 100 + 100, 2, 1, 1, 0)
    assert load.regressors(3.0)[-1] == 2, "tokens beyond the knee"
    assert load.kind is StepKind.MIXED


def test_one_token_is_no_batch() -> None:
    load = StepLoad()
    load.add_decode(9)
    assert load.regressors()[-3:] == (0, 1, 0)
    load.add_decode(9)
    assert load.regressors()[-3:] == (1, 1, 0)


def test_a_copy_is_independent() -> None:
    load = StepLoad()
    load.add_decode(1)
    other = load.copy()
    other.add_chunk(5, 0)
    assert load.kind is StepKind.DECODE
    assert other.num_tokens == 6
