"""Queries about conversations and their items."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import cast

from sqlalchemy import CursorResult, delete, insert, select
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import Conversation, ConversationItem


async def add(
    session: AsyncSession, project_id: str, conversation_id: str, metadata: Mapping[str, str]
) -> Conversation:
    """Begin a conversation."""
    made = Conversation(
        id=conversation_id, project_id=project_id, conversation_metadata=dict(metadata)
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
        Conversation.id == conversation_id, Conversation.project_id == project_id
    )
    if lock:
        query = query.with_for_update()
    return (await session.execute(query)).scalar_one_or_none()


async def remove(session: AsyncSession, project_id: str, conversation_id: str) -> bool:
    """Delete a conversation with its items; whether it was there."""
    done = await session.execute(
        delete(Conversation).where(
            Conversation.id == conversation_id, Conversation.project_id == project_id
        )
    )
    return bool(cast("CursorResult[object]", done).rowcount)


async def append(
    session: AsyncSession, conversation: Conversation, items: Sequence[tuple[str, bytes]]
) -> None:
    """Add items, each an id and its JSON, in order, to a conversation that is locked."""
    if items:
        rows = [
            {"conversation_id": conversation.id, "id": id_, "item": item} for id_, item in items
        ]
        await session.execute(insert(ConversationItem), rows)


async def items(session: AsyncSession, conversation: Conversation) -> Sequence[bytes]:
    """Every item, the oldest first."""
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
    done = await session.execute(
        delete(ConversationItem).where(
            ConversationItem.conversation_id == conversation.id, ConversationItem.id.in_(item_ids)
        )
    )
    return cast("CursorResult[object]", done).rowcount
