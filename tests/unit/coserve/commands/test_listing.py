"""Which records of a list pass a filter."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from coserve.commands.listing import passing

BATCHES: list[dict[str, Any]] = [
    {"id": "batch_1", "metadata": {"team": "blue"}, "coserve": {"feasible": False}},
    {"id": "batch_2", "metadata": {"owner": "ada"}, "coserve": {"feasible": True}},
    {"id": "batch_3", "metadata": None, "coserve": {"feasible": None}},
]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (["metadata.team=blue"], ["batch_1"]),
        (["metadata.team=null"], ["batch_2", "batch_3"]),
        (["coserve.feasible=false"], ["batch_1"]),
        (["id=BATCH_*", "metadata.owner=a?a"], ["batch_2"]),
    ],
)
def test_dotted_paths_patterns_and_metadata_of_some(filters: list[str], found: list[str]) -> None:
    assert [one["id"] for one in passing(BATCHES, filters)] == found


@pytest.mark.parametrize("unknown", ["coserve.feasable=false", "colour=red"])
def test_a_key_that_no_record_can_have_is_refused(unknown: str) -> None:
    with pytest.raises(typer.BadParameter, match="no key"):
        list(passing(BATCHES, [unknown]))
