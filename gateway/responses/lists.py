"""Pages of items, in memory: those of one response or conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from api.errors import NotFound
from api.responses.items import Item


def page_of(
    items: Sequence[Item], *, after: str | None, limit: int, oldest_first: bool
) -> dict[str, Any]:
    """One page of items that are given oldest first.

    Raises:
        NotFound: There is no item `after`.
    """
    ordered = list(items) if oldest_first else list(reversed(items))
    if after is not None:
        places = [place for place, item in enumerate(ordered) if item["id"] == after]
        if not places:
            raise NotFound(f"Item with id '{after[:64]}' not found.", param="after")
        ordered = ordered[places[-1] + 1 :]
    page = ordered[:limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(ordered) > limit,
    }
