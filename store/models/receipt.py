"""Write receipts: which writes of counters have been applied."""

from __future__ import annotations

from sqlalchemy import BigInteger
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base
from store.types import CreatedAt, TextId


class WriteReceipt(Base):
    """The last write of one writer: a dispatcher, or the usage recorder of a gateway process.

    Invariant: set in the transaction of the write itself, so a write whose COMMIT got no answer
    is known to have been applied by its number, and is not applied again.
    """

    __tablename__ = "write_receipts"

    writer: Mapped[TextId]
    number: Mapped[int] = mapped_column(BigInteger)
    """From 1; the writer counts its writes and repeats one until it knows its end."""
    written_at: Mapped[CreatedAt]
