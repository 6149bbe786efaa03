"""Retracted online rows come back first, at the cost of offline rows."""

from __future__ import annotations

from engine_adapter.core.request import pages_for
from engine_adapter.policies.parts.builder import PlanBuilder
from engine_adapter.policies.parts.rows import RowsByRole
from engine_adapter.policies.parts.victims import VictimPool


def fetch_online(builder: PlanBuilder, rows: RowsByRole) -> None:
    """Order online rows back from the host.

    Args:
        builder: The step, with its online tokens taken and nothing offline.
        rows: The rows of its snapshot.
    """
    from_offline = VictimPool(builder, rows.offline, ())
    from_all = VictimPool(builder, rows.offline, rows.online)
    for row in [*rows.prefetching, *rows.online_waiting]:
        if not row.is_online or row.host_tokens == 0 or row.rid in builder.taken:
            continue
        # Room for all of it: half a row would hold pages and serve nobody.
        num_pages = pages_for(row.host_tokens, builder.page_tokens) + 1 - row.device_pages
        if (row.holds_slot or builder.pages_left >= num_pages) and builder.prefetch(row):
            continue
        if from_offline.make_room(row, num_pages, 0 if row.holds_slot else 1):
            builder.prefetch(row)
        elif row.holds_slot and from_all.make_room(row, num_pages):
            # It holds pages nobody can use: newer online rows this step has not taken give way.
            builder.prefetch(row)
