"""Every figure that is not near is followed by experiments."""

from __future__ import annotations

from bench.reproduce.__main__ import EXPERIMENTS, key, stored
from bench.reproduce.explain import EXPLANATIONS
from bench.reproduce.figure import Change, Explanation
from bench.reproduce.page import mean


def test_figures_that_are_not_near_are_explained() -> None:
    found = stored([1, 2, 3])
    explained = {(id(one.of), number) for one in EXPLANATIONS for number in one.figures}
    missing = []
    for experiment in EXPERIMENTS:
        cells = list(found[key(experiment)].values())
        for number, figure in enumerate(experiment.figures, start=1):
            if (
                not figure.holds(mean(figure, cells)[0])
                and (id(experiment), number) not in explained
            ):
                missing.append(f"{key(experiment)}: {figure.what}")
    assert not missing


def test_a_changes_figures_are_found_again() -> None:
    changes = tuple(
        Change(str(i), lambda seed, i=i: {"a": {"x": float(seed + i)}})  # type: ignore[misc]
        for i in range(12)
    )
    one = Explanation(EXPERIMENTS[0], (1,), changes, "")
    cells = [one.run(seed) for seed in (1, 2)]
    assert one.cells(cells, 1) == [{"a": {"x": 2.0}}, {"a": {"x": 3.0}}]
    assert one.cells(cells, 11) == [{"a": {"x": 12.0}}, {"a": {"x": 13.0}}]
