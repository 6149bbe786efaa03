"""Aborts, pauses, reports and idling with rows SGLang does not know, overlap loop on and off."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.engine.engine_scripts import LIMIT_S, run_script

pytestmark = [pytest.mark.timeout(LIMIT_S), pytest.mark.thorough]

SCENARIOS = (
    "aborts",
    "abort_running",
    "pauses",
    "penalties",
    "logprobs",
    "aborted_then_paused",
    "same_id_again",
    "new_weights",
    "penalties_anew",
    "prompt_logprobs",
    "grammar",
    "slots_for_online",
    "every_slot",
    "online_prefixes_stay",
    "monitor_stops",
    "idles",
    "ends_before_the_launch",
    "aborted_prompts_go_no_further",
    "unread_arrivals",
    "least_tokens",
    "measures_armed_cells_layer_by_layer",
    "measures_beside_a_queue",
    "measures_beside_a_chat",
)


@cache
def results(overlap: str) -> dict[str, Any]:
    """All scenarios of one engine, run once."""
    return run_script("coserving_debt.py", overlap)


@pytest.mark.parametrize("overlap", ["1", "0"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(overlap: str, scenario: str) -> None:
    found = results(overlap)
    assert scenario in found, f"not reached; failed before: {list(found)[-1]}"
    assert found[scenario]["error"] is None, found[scenario]["error"]


@pytest.mark.parametrize("overlap", ["1", "0"])
@pytest.mark.parametrize("policy", ["conserve_v1", "conserve_v2"])
def test_turns_and_prefix_hits(overlap: str, policy: str) -> None:
    found = run_script("coserving_turns.py", overlap, policy)
    for scenario in ("turn_beside_chat", "hits_grow"):
        assert scenario in found, found
        assert found[scenario]["error"] is None, found[scenario]["error"]


SHARED = {2048: ("shared_by_all", "shared_beside_chat"), 800: ("shared_with_chat",)}
"""Scenarios by the KV tokens of their engine."""


@cache
def shared(overlap: str, kv: int) -> dict[str, Any]:
    """All scenarios of one engine, run once."""
    return run_script("coserving_shared.py", overlap, kv, *SHARED[kv])


@pytest.mark.parametrize("overlap", ["1", "0"])
@pytest.mark.parametrize(
    ("kv", "scenario"), [(kv, scenario) for kv, names in SHARED.items() for scenario in names]
)
def test_rows_that_share_a_system_prompt(overlap: str, kv: int, scenario: str) -> None:
    found = shared(overlap, kv)
    assert scenario in found, f"not reached; failed before: {list(found)[-1]}"
    assert found[scenario]["error"] is None, found[scenario]["error"]
