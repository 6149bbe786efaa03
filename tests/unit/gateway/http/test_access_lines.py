from __future__ import annotations

import asyncio
import logging
import time

import pytest

from gateway.http.access_log import AccessLines


@pytest.fixture(autouse=True)
def info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gateway.access")


async def test_lines_are_written_in_order_with_the_instants_they_were_noted_at(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines, before = AccessLines(), time.time_ns() / 1e9
    lines.add({"n": 1})
    between = time.time_ns() / 1e9
    lines.add({"n": 2})
    after = time.time_ns() / 1e9
    assert not caplog.records, "nothing is written while a request waits for it"
    lines.write()
    first, second = caplog.records
    assert [record.__dict__["fields"] for record in (first, second)] == [{"n": 1}, {"n": 2}]
    assert before <= first.created <= between <= second.created <= after
    assert first.levelname == "INFO"
    lines.write()
    assert len(caplog.records) == 2


async def test_they_are_written_by_themselves(caplog: pytest.LogCaptureFixture) -> None:
    lines = AccessLines()
    for number in range(3):
        lines.add({"n": number})
        async with asyncio.timeout(30):
            while len(caplog.records) <= number:
                await asyncio.sleep(0.01)
