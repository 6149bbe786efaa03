"""The tables of both state machines are closed, and the same words are in SQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from batch import states
from batch.states import BatchStatus, RowStatus
from store.models import Batch
from store.states import LIVE_STATUSES


def test_every_batch_status_is_terminal_or_has_an_exit() -> None:
    assert set(states.BATCH_TRANSITIONS) == set(BatchStatus)
    for status, exits in states.BATCH_TRANSITIONS.items():
        assert (status in states.TERMINAL_BATCH) == (not exits), status


def test_every_row_status_is_terminal_or_has_an_exit() -> None:
    assert set(states.ROW_TRANSITIONS) == set(RowStatus)
    for status, exits in states.ROW_TRANSITIONS.items():
        assert (status in states.TERMINAL_ROW) == (not exits), status


def test_every_batch_status_leads_to_an_end() -> None:
    for status in BatchStatus:
        reached = {status}
        for _ in BatchStatus:
            reached |= {target for one in reached for target in states.BATCH_TRANSITIONS[one]}
        assert reached & states.TERMINAL_BATCH, status


def test_every_status_but_the_first_can_be_entered() -> None:
    assert [s for s in BatchStatus if not states.sources_of(s)] == [BatchStatus.VALIDATING]
    # A row starts pending, and comes back to it.
    assert [s for s in RowStatus if not states.row_sources_of(s)] == []


@pytest.mark.contract("R-01")
def test_live_is_what_has_an_exit() -> None:
    assert set(LIVE_STATUSES) == states.LIVE_BATCH == {
        status for status, exits in states.BATCH_TRANSITIONS.items() if exits
    }  # fmt: skip


@pytest.mark.parametrize("status", [s for s in BatchStatus if s is not BatchStatus.VALIDATING])
def test_every_status_has_its_instant(status: BatchStatus) -> None:
    assert f"{status}_at" in Batch.__table__.columns


def test_cancel_is_possible_before_finalizing_only() -> None:
    assert {BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS} == states.CANCELLABLE_BATCH


def test_the_diagram_draws_every_move() -> None:
    drawn = states.batch_diagram()
    for status, exits in states.BATCH_TRANSITIONS.items():
        for target in exits:
            assert f"    {status} --> {target}\n" in drawn
    assert drawn.count("--> [*]") == len(states.TERMINAL_BATCH)
    assert states.row_diagram().count("-->") == 1 + sum(
        len(exits) or 1 for exits in states.ROW_TRANSITIONS.values()
    )


def test_the_diagrams_in_the_documentation_are_current() -> None:
    page = (Path(__file__).parents[3] / "docs/batch-life.md").read_text()
    for diagram in (states.batch_diagram(), states.row_diagram()):
        assert f"```mermaid\n{diagram}```\n" in page
