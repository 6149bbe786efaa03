"""Pages of items; those of one response are cut in memory, for they came in one request."""

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
            raise no_item_after(after)
        ordered = ordered[places[-1] + 1 :]
    return listing(ordered[:limit], has_more=len(ordered) > limit)


def listing(page: Sequence[Item], *, has_more: bool) -> dict[str, Any]:
    """A page as it is answered."""
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": has_more,
    }


def no_item_after(after: str) -> NotFound:
    """A page cannot begin after an item that is not there."""
    return NotFound(f"Item with id '{after[:64]}' not found.", param="after")
