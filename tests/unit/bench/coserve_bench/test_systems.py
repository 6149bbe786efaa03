from __future__ import annotations

import pytest

from bench.coserve_bench.systems import (
    ABLATIONS,
    DEFAULT_SYSTEMS,
    REFERENCE,
    SYSTEMS,
    at_levels,
    find_system,
    priority_candidates,
)
from lab.policies.registry import NAMES


def test_baselines_run_without_the_plugin() -> None:
    for name in ("online-only", "non-preemptive", "sglang-priority"):
        assert SYSTEMS[name].stock
        assert SYSTEMS[name].env == {}


def test_co_serving_systems_name_a_policy_that_exists() -> None:
    ours = [system for system in SYSTEMS.values() if not system.stock]
    assert len(ours) >= 4
    assert all(system.env["COSERVE_POLICY"] in NAMES for system in ours)


def test_the_reference_runs_first_and_alone() -> None:
    assert DEFAULT_SYSTEMS[0] == REFERENCE
    assert not SYSTEMS[REFERENCE].offline
    assert set(DEFAULT_SYSTEMS) | set(ABLATIONS) <= set(SYSTEMS)


def test_stock_priority_may_choose_among_six_settings() -> None:
    assert (
        len({(s.chunk_tokens, "--enable-mixed-chunk" in s.args) for s in priority_candidates()})
        == 6
    )
    assert find_system("sglang-priority@128+mixed").chunk_tokens == 128


def test_an_unknown_system_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown system 'x'; choose among online-only, "):
        find_system("x")


def test_stock_sglang_takes_a_setting() -> None:
    mixing = find_system("sglang-priority@2048+mixed")
    assert mixing.chunk_tokens == 2048
    assert "--enable-mixed-chunk" in mixing.args
    assert "--enable-mixed-chunk" not in find_system("non-preemptive@64").args


@pytest.mark.parametrize("name", ["conserve-v2@512", "sglang-priority@x", "online-only@64+x"])
def test_other_settings_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name.replace("+", r"\+")):
        find_system(name)


def test_systems_with_levels_run_once_for_each() -> None:
    names = at_levels(["online-only", "conserve-v2"], ["invisible", "max"])
    assert names == ("online-only", "conserve-v2:invisible", "conserve-v2:max")
    assert [find_system(name).env.get("COSERVE_LEVEL") for name in names] == [
        None,
        "invisible",
        "max",
    ]
    assert at_levels(["conserve-v2"], []) == ("conserve-v2",)
    for wrong in ("conserve-v2:most", "sarathi-p:max", "online-only:max"):
        with pytest.raises(ValueError, match="levels"):
            find_system(wrong)
