"""Stored responses, and conversations that responses add to.

What callers and models say is kept as bytes of JSON: the database's own JSON knows no NUL.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, ForeignKey, Identity, Index, LargeBinary, Text, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base
from store.types import CreatedAt, Instant, TextId


class StoredResponse(Base):
    """One response that has ended, or is made in the background; visible until `expires_at`."""

    __tablename__ = "responses"
    __table_args__ = (
        Index("ix_responses_expires_at", "expires_at"),
        Index("ix_responses_project_id", "project_id"),
        Index("ix_responses_item_ids", "item_ids", postgresql_using="gin"),
    )

    id: Mapped[TextId]
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    previous_response_id: Mapped[str | None]
    body: Mapped[bytes] = mapped_column(LargeBinary)
    """The Response object."""
    input_items: Mapped[bytes] = mapped_column(LargeBinary)
    """The items of its own input, whole."""
    item_ids: Mapped[list[str]] = mapped_column(ARRAY(Text))
    """Of input and output: by these an `item_reference` finds them."""
    created_at: Mapped[CreatedAt]
    expires_at: Mapped[Instant]


class Conversation(Base):
    """Items that several responses share; visible until `expires_at`, which each addition moves."""

    __tablename__ = "conversations"
    __table_args__ = (
        Index("ix_conversations_expires_at", "expires_at"),
        Index("ix_conversations_project_id", "project_id"),
    )

    id: Mapped[TextId]
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    conversation_metadata: Mapped[dict[str, str]] = mapped_column("metadata", JSONB)
    created_at: Mapped[CreatedAt]
    expires_at: Mapped[Instant] = mapped_column(
        server_default=text("(statement_timestamp() + '30 days'::interval)")
    )


class ConversationItem(Base):
    """One item; `place` orders those of a conversation."""

    __tablename__ = "conversation_items"
    __table_args__ = (Index("ix_conversation_items_listing", "conversation_id", "place"),)

    place: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    conversation_id: Mapped[str] = mapped_column(ForeignKey("conversations.id", ondelete="CASCADE"))
    id: Mapped[str]
    item: Mapped[bytes] = mapped_column(LargeBinary)
