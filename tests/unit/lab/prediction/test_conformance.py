"""What every length predictor keeps to."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_adapter.scheduling.answer_lengths import DEFAULT_TOKENS, Asked, History, LengthPredictor
from lab.prediction.learned import Learned, at_once
from lab.prediction.oracle import NoisyOracle, Oracle
from lab.prediction.registry import SIMULATED, simulated_predictor


def truth(rid: str) -> int:
    return 20 + int(rid) * 7 % 300


MAKERS: dict[str, Callable[[], LengthPredictor]] = {
    "oracle": lambda: Oracle(truth),
    "noisy_oracle": lambda: NoisyOracle(truth),
    "history": History,
    "learned": lambda: Learned(train_every=64, start=at_once),
}
EVERY = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())

requests = st.lists(
    st.tuples(
        st.integers(1, 100_000),  # prompt
        st.integers(1, 5000),  # bound
        st.sampled_from(["", "b1", "b2"]),
        st.floats(0.0, 2.0),  # temperature
        st.integers(1, 5000),  # answer
    ),
    min_size=1,
    max_size=100,
)


@EVERY
@settings(max_examples=15, deadline=None)
@given(specs=requests)
def test_an_expectation_is_inside_the_bound_and_the_same_each_time(
    make: Callable[[], LengthPredictor], specs: list[tuple[int, int, str, float, int]]
) -> None:
    histories = []
    for _ in range(2):
        predictor, said = make(), []
        for i, (prompt, bound, group, temperature, answer) in enumerate(specs):
            asked = Asked(str(i), prompt, bound, group, temperature)
            said.append(predictor.expect(asked))
            assert 1 <= said[-1] <= bound
            predictor.learn(asked, min(answer, bound))
        histories.append(said)
    assert histories[0] == histories[1]


@EVERY
def test_a_batch_whose_answers_are_alike_is_known_after_some(
    make: Callable[[], LengthPredictor],
) -> None:
    predictor = make()
    for i in range(200):
        group, tokens = ("short", 20) if i % 2 else ("long", 400)
        predictor.learn(Asked(str(i), 100, 4096, group), tokens)
    short, long = (predictor.expect(Asked("0", 100, 4096, group)) for group in ("short", "long"))
    if isinstance(predictor, Oracle | NoisyOracle):
        assert short == long  # it knows the request, not the batch
    else:
        assert 15 <= short <= 30
        assert 300 <= long <= 500


def test_nothing_known_is_a_plain_number() -> None:
    assert History().expect(Asked("0", 10, 4096)) == DEFAULT_TOKENS


def test_the_newest_answers_count() -> None:
    predictor = History()
    for i in range(300):
        predictor.learn(Asked(str(i), 10, 4096, "b"), 500)
    for i in range(300):
        predictor.learn(Asked(str(i), 10, 4096, "b"), 30)
    assert predictor.expect(Asked("x", 10, 4096, "b")) == 30


@pytest.mark.parametrize("accuracy", [0.5, 0.75, 0.95])
def test_a_noisy_oracle_is_as_accurate_as_asked(accuracy: float) -> None:
    predictor = NoisyOracle(lambda rid: 1000, accuracy, seed=3)
    said = [predictor.expect(Asked(str(i), 10, 100_000)) for i in range(4000)]
    near = sum(1000 / 1.15 <= tokens <= 1150 for tokens in said) / len(said)
    assert abs(near - accuracy) < 0.03


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_shares_out_of_range_are_refused(share: float) -> None:
    with pytest.raises(ValueError, match="above 0 and below 1"):
        NoisyOracle(truth, share)
    with pytest.raises(ValueError, match="above 0 and below 1"):
        History(share)


def test_trees_learn_what_a_quantile_cannot() -> None:
    """Answers grow with the prompt: one number for the group is wrong for both ends."""
    history, learned = History(), Learned(train_every=256, start=at_once)
    for i in range(512):
        prompt = 100 if i % 2 else 3200
        for predictor in (history, learned):
            predictor.learn(Asked(str(i), prompt, 4096), prompt // 4)
    assert learned.trainings == 2
    assert abs(learned.expect(Asked("a", 100, 4096)) - 25) < 8
    assert abs(learned.expect(Asked("b", 3200, 4096)) - 800) < 200
    assert history.expect(Asked("a", 100, 4096)) == history.expect(Asked("b", 3200, 4096))


def test_predictors_by_name() -> None:
    assert [simulated_predictor(name, truth).name for name in SIMULATED] == list(SIMULATED)
    with pytest.raises(ValueError, match="unknown length predictor 'seer'; choose among hist"):
        simulated_predictor("seer", truth)
