"""What of the engine's tests runs on a card, and what counts as a failure there."""

from __future__ import annotations

import ast
from typing import Any

from bench.gpu.mechanisms import SCRIPTS, Part, failures, parts

STOPS = Part("stops", "coserving_scenarios.py", ("1", "bfloat16", "16", "restore", "park"), {})


def test_every_scenario_that_is_asked_for_is_one_of_its_script() -> None:
    """A name that the script has not is left out there, and a card would tell nothing of it."""
    for part in parts():
        script = ast.parse((SCRIPTS / part.script).read_text())
        functions = {node.name for node in script.body if isinstance(node, ast.FunctionDef)}
        assert set(part.scenarios) <= functions, part.name
    assert sum(bool(part.scenarios) for part in parts()) == 4


def told(results: dict[str, Any], ended: object = 0) -> dict[str, Any]:
    return {"stops": {"ended": ended, "results": results}}


def test_what_raised_did_not_run_or_ended_badly_is_a_failure() -> None:
    well: dict[str, Any] = {"restore": {"error": None}, "park": {"error": None}}
    assert failures(told(well), [STOPS]) == []
    assert failures(told({**well, "park": {"error": "lost"}}), [STOPS]) == ["stops: park"]
    assert failures(told({"restore": {}}), [STOPS]) == ["stops: park did not run"]
    assert failures(told(well, "out of time"), [STOPS]) == ["stops"]
    assert "stops" in failures(told({}), [STOPS])
