"""Which pages are copied to the host beside the step (ConServe v1 section 4.4, v2 section 4.4).

Nothing while free KV is at or above a threshold. Below it the number of rows covered ramps up
with the shortage, the way random early detection ramps up its drop rate, so that copying keeps
pace with allocation::

    rows covered
      all │          ┌──
          │       ╱
          │    ╱
        0 └──────────────► shortage
          threshold    none free

Copies are capped by what the interconnect moves during one step; the rest waits. Rows that will
be retracted first are covered first. Online rows are covered when memory is nearly gone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine_adapter.core.request import Phase, RequestRow
from engine_adapter.policies.parts.builder import PlanBuilder
from engine_adapter.policies.settings import PolicySettings


def uncopied_pages(row: RequestRow, host_page_tokens: int) -> int:
    """Completed pages of ``row`` that are neither on the host nor on their way.

    Tokens of a launched step count: the port copies behind the step that writes them.
    """
    return row.computed_tokens // host_page_tokens - row.host_pages - row.host_pages_pending


def order_checkpoints(
    builder: PlanBuilder,
    offline: Sequence[RequestRow],
    online: Sequence[RequestRow],
    settings: PolicySettings,
) -> None:
    """Add this step's copies to the plan.

    Args:
        builder: The step, with its rows already taken.
        offline: Flex and offline slot holders, most important first.
        online: Online slot holders.
        settings: Thresholds.
    """
    resources = builder.snapshot.resources
    if builder.copy_left <= 0 or builder.host_left <= 0 or resources.total_pages <= 0:
        return
    free_share = builder.pages_left / resources.total_pages
    threshold = settings.checkpoint_free_share
    if threshold <= 0.0 or free_share >= threshold:
        return
    covered = math.ceil(len(offline) * min(1.0, 2.0 * (1.0 - free_share / threshold)))
    left = _copy(builder, list(reversed(offline))[:covered])
    if left and free_share < settings.checkpoint_online_share:
        _copy(builder, online)


def _copy(builder: PlanBuilder, rows: Sequence[RequestRow]) -> bool:
    """Copy row after row; False once host or interconnect are used up."""
    host_page = builder.snapshot.resources.host_page_tokens
    for row in rows:
        if row.phase is Phase.PREFETCHING or row.rid in builder.retracted:
            continue
        pages = uncopied_pages(row, host_page)
        if pages > 0 and builder.checkpoint(row, pages) < pages:
            return False
    return True
