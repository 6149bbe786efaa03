"""Copies of one step never hold up a first token for long, whoever runs."""

from __future__ import annotations

import pytest

from engine_adapter.scheduling.snapshot import (
    LINK_BYTES_PER_S,
    SHARE_OF_TBT,
    SHARE_OF_TTFT,
    copy_pages,
    link_wait_s,
)
from engine_adapter.scheduling.targets import Slo

SLO = Slo(ttft_s=0.4, tbt_s=0.02)
PAGE_8B = 16 * 128 * 1024  # 16 tokens of an 8B model's KV


@pytest.mark.parametrize("beside_online", [True, False])
def test_every_step_has_a_bound_that_the_link_keeps(beside_online: bool) -> None:
    pages = copy_pages(SLO, beside_online=beside_online, page_bytes=PAGE_8B, page_cpu_s=0.0)
    share_s = SHARE_OF_TBT * SLO.tbt_s if beside_online else SHARE_OF_TTFT * SLO.ttft_s
    assert share_s - PAGE_8B / LINK_BYTES_PER_S < pages * PAGE_8B / LINK_BYTES_PER_S <= share_s


def test_retracted_requests_of_a_whole_pool_come_back_in_many_steps() -> None:
    """200,000 tokens of an 8B model are 26 GB: more than half a second of the link."""
    whole = 200_000 // 16
    pages = copy_pages(SLO, beside_online=False, page_bytes=PAGE_8B, page_cpu_s=0.0)
    assert link_wait_s(whole, PAGE_8B, 0) > SLO.ttft_s
    assert link_wait_s(pages, PAGE_8B, 0) <= 0.1 * SLO.ttft_s


def test_a_page_that_the_host_copies_costs_what_it_has_cost() -> None:
    assert copy_pages(SLO, beside_online=False, page_bytes=PAGE_8B, page_cpu_s=0.004) == 10
    assert copy_pages(SLO, beside_online=True, page_bytes=PAGE_8B, page_cpu_s=1.0) == 1


def test_what_the_staging_buffers_hold_is_not_waited_for() -> None:
    assert link_wait_s(10, 1000, 10_000) == 0.0
    assert link_wait_s(30, 1000, 10_000) == pytest.approx(20_000 / LINK_BYTES_PER_S)
