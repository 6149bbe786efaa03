"""Queries about conversations and their items."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Final

from sqlalchemy import delete, func, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import Conversation, ConversationItem
from store.repositories.response import Size
from store.repositories.statements import changed, num_changed

MAX_PAGE_BYTES: Final = 4 * 1024 * 1024

_APPEND: Final = text("""
    INSERT INTO conversation_items (conversation_id, id, item)
    SELECT :conversation_id, given.id, given.item
    FROM unnest(CAST(:ids AS text[]), CAST(:items AS bytea[]))
        WITH ORDINALITY AS given(id, item, number)
    ORDER BY given.number
""")
"""One statement for all: an item may be one of thousands, and each costs the event loop."""


async def add(
    session: AsyncSession,
    project_id: str,
    conversation_id: str,
    metadata: Mapping[str, str],
    lifetime: timedelta,
) -> Conversation:
    made = Conversation(
        id=conversation_id,
        project_id=project_id,
        conversation_metadata=dict(metadata),
        expires_at=func.statement_timestamp() + lifetime,
    )
    session.add(made)
    await session.flush()
    await session.refresh(made)
    return made


async def get(
    session: AsyncSession, project_id: str, conversation_id: str, *, lock: bool = False
) -> Conversation | None:
    """A conversation of a project.

    Args:
        session: An open transaction.
        project_id: Those of others are as unknown as random ids.
        conversation_id: Public id.
        lock: Keep it from being changed or deleted until the transaction ends.
    """
    query = select(Conversation).where(
        Conversation.id == conversation_id,
        Conversation.project_id == project_id,
        Conversation.expires_at > func.statement_timestamp(),
    )
    if lock:
        query = query.with_for_update()
    return (await session.execute(query)).scalar_one_or_none()


async def remove(session: AsyncSession, project_id: str, conversation_id: str) -> bool:
    """Delete a conversation with its items; whether it was there."""
    return await changed(
        session,
        delete(Conversation).where(
            Conversation.id == conversation_id, Conversation.project_id == project_id
        ),
    )


async def append(
    session: AsyncSession,
    conversation: Conversation,
    items: Sequence[tuple[str, bytes]],
    lifetime: timedelta,
) -> None:
    """Add items, each an id and its JSON, in order, to a conversation that is locked.

    Its lifetime begins anew.
    """
    if items:
        ids, contents = zip(*items, strict=True)
        await session.execute(
            _APPEND,
            {"conversation_id": conversation.id, "ids": list(ids), "items": list(contents)},
        )
        await session.execute(
            update(Conversation)
            .where(Conversation.id == conversation.id)
            .values(expires_at=func.statement_timestamp() + lifetime)
        )


async def size(session: AsyncSession, conversation: Conversation) -> Size:
    """How much `items` would read."""
    found = await session.execute(
        select(
            func.count(), func.coalesce(func.sum(func.octet_length(ConversationItem.item)), 0)
        ).where(ConversationItem.conversation_id == conversation.id)
    )
    num_items, num_bytes = found.one()
    return Size(num_items, int(num_bytes))


async def place_of(
    session: AsyncSession, conversation: Conversation, item_id: str, *, oldest_first: bool
) -> int | None:
    """Where a page after an item begins; none without such an item."""
    place = ConversationItem.place
    place_found: int | None = await session.scalar(
        select(func.max(place) if oldest_first else func.min(place)).where(
            ConversationItem.conversation_id == conversation.id, ConversationItem.id == item_id
        )
    )
    return place_found


async def page(
    session: AsyncSession,
    conversation: Conversation,
    *,
    limit: int,
    after: int | None,
    oldest_first: bool,
) -> tuple[list[tuple[str, bytes]], bool]:
    """Up to `limit` items and `MAX_PAGE_BYTES`, one at least, and whether more follow."""
    place = ConversationItem.place
    of_it = ConversationItem.conversation_id == conversation.id
    query = select(place, func.octet_length(ConversationItem.item)).where(of_it)
    if after is not None:
        query = query.where(place > after if oldest_first else place < after)
    order = place if oldest_first else place.desc()
    found = (await session.execute(query.order_by(order).limit(limit + 1))).all()
    places: list[int] = []
    num_bytes = 0
    for at, size_bytes in found[:limit]:
        num_bytes += size_bytes
        if places and num_bytes > MAX_PAGE_BYTES:
            break
        places.append(at)
    wanted = select(ConversationItem.id, ConversationItem.item)
    kept = await session.execute(wanted.where(of_it, place.in_(places)).order_by(order))
    return [(row.id, row.item) for row in kept], len(found) > len(places)


async def item(session: AsyncSession, conversation: Conversation, item_id: str) -> bytes | None:
    """One item; the oldest of several with this id."""
    query = (
        select(ConversationItem.item)
        .where(ConversationItem.conversation_id == conversation.id, ConversationItem.id == item_id)
        .order_by(ConversationItem.place)
        .limit(1)
    )
    found: bytes | None = await session.scalar(query)
    return found


async def items(session: AsyncSession, conversation: Conversation) -> Sequence[bytes]:
    """Every item, the oldest first; ask for the `size` before."""
    query = (
        select(ConversationItem.item)
        .where(ConversationItem.conversation_id == conversation.id)
        .order_by(ConversationItem.place)
    )
    return (await session.execute(query)).scalars().all()


async def remove_items(
    session: AsyncSession, conversation: Conversation, item_ids: Collection[str]
) -> int:
    """Delete items by their ids; how many."""
    return await num_changed(
        session,
        delete(ConversationItem).where(
            ConversationItem.conversation_id == conversation.id, ConversationItem.id.in_(item_ids)
        ),
    )


async def collect(session: AsyncSession, limit: int) -> int:
    """Remove up to `limit` that have expired, with their items; how many."""
    gone = (
        select(Conversation.id)
        .where(Conversation.expires_at <= func.statement_timestamp())
        .order_by(Conversation.expires_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    return await num_changed(session, delete(Conversation).where(Conversation.id.in_(gone)))
