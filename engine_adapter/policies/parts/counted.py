"""Steps bounded by a count of tokens instead of a time: what the baselines do."""

from __future__ import annotations

from collections.abc import Iterable

from engine_adapter.core.ready import ReadyRows
from engine_adapter.core.request import Phase, RequestRow, pages_for
from engine_adapter.policies.parts.builder import UNBOUNDED_S, PlanBuilder
from engine_adapter.policies.parts.victims import VictimPool


def take_all_decode(builder: PlanBuilder, rows: ReadyRows, victims: VictimPool) -> None:
    """Take every decode row; out of pages, the least important rows make room."""
    ready = builder.untaken(rows)
    for row in ready.rows[builder.decode_run(ready, UNBOUNDED_S) :]:
        if row.rid in builder.taken or builder.decode(row, UNBOUNDED_S):
            continue
        if victims.make_room(row, builder.decode_pages(row)):
            builder.decode(row, UNBOUNDED_S)


def take_prompts(builder: PlanBuilder, rows: Iterable[RequestRow], keep_pages: int) -> None:
    """Take prompt tokens row after row until the executor's chunk or the pages are used up.

    A row without a slot is admitted only if its whole prompt has pages beside ``keep_pages``.
    """
    for row in rows:
        if builder.chunk_left <= 0:
            return
        if row.rid in builder.taken:
            continue
        keep = 0
        if not row.holds_slot:
            keep = keep_pages if builder.snapshot.running or not builder.is_empty else 0
            if pages_for(row.fill_tokens, builder.page_tokens) > builder.pages_left - keep:
                return
        taken = builder.chunk(row, UNBOUNDED_S, keep)
        if taken == 0 and builder.has_decode and not row.can_mix:
            continue  # it waits for a step without decode rows, those behind it need not
        if taken < row.remaining_tokens:
            return


def unblock(builder: PlanBuilder, rows: Iterable[RequestRow], victims: VictimPool) -> None:
    """Half-filled prompts hold every page and nothing runs: the first displaces the others."""
    if not builder.is_empty:
        return
    for row in rows:
        if row.phase is not Phase.PREFILL or row.rid in builder.taken:
            continue
        tokens = row.start_tokens + min(row.remaining_tokens, builder.chunk_left)
        pages = pages_for(tokens, builder.page_tokens) - row.device_pages
        if victims.make_room(row, pages) and builder.chunk(row, UNBOUNDED_S):
            return
