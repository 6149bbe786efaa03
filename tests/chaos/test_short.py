"""The short form of `make chaos`, for every run of the tests: few kills, small batches."""

from __future__ import annotations

import random

import pytest

from tests.chaos import figures
from tests.chaos.suite import Setting, run
from tests.chaos.victims import Kind, plan

pytestmark = pytest.mark.thorough

SHORT = Setting(seed=1, num_lines=400, latency_ms=200)
KINDS = (Kind.POOL_CHILD, Kind.BROKER_WIPED, Kind.POSTGRES, Kind.ENGINE)


async def test_every_line_once_whatever_dies() -> None:
    deaths, findings = await run(SHORT, KINDS)
    assert [death.kind for death in deaths] == list(KINDS)
    assert min(death.in_flight.num for death in deaths) > 0
    assert findings.num_lines >= SHORT.num_lines
    assert findings.num_in_output + findings.num_in_errors == findings.num_lines
    assert findings.num_calls >= findings.num_in_output
    assert findings.faults == {}


def test_fifteen_kills_have_every_kind_and_a_seed_fixes_their_order() -> None:
    for num_kills in (15, 16, 200):
        planned = plan(num_kills, random.Random(7))
        assert len(planned) == num_kills
        assert set(planned) == set(Kind)
        assert planned == plan(num_kills, random.Random(7))
    assert plan(200, random.Random(7)) != plan(200, random.Random(8))
    assert plan(13, random.Random(7), real=True).count(Kind.ENGINE) == 4


def test_quantiles_are_values_that_were_measured() -> None:
    values = [float(n) for n in range(100, 0, -1)]
    assert (figures.quantile(values, 0.5), figures.quantile(values, 0.99)) == (50.0, 99.0)
    assert figures.quantile([3.0], 0.99) == 3.0
