"""History: what the service did, step by step, for charts; bounded, and written for all to see."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Float, Text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base
from store.types import CreatedAt, Instant


class HistoryPoint(Base):
    """Figures of one series over one step of time; they only ever grow, by addition.

    Every figure is one that adds up (counts, seconds, a gauge times its samples): a step of a
    minute is the sum of its ten-second steps, and a chart over engines the sum of theirs.
    """

    __tablename__ = "history_points"

    step_s: Mapped[int] = mapped_column(primary_key=True)
    """Length of the step: 10, 60, 600 or 7,200."""
    began_at: Mapped[Instant] = mapped_column(primary_key=True)
    """A multiple of `step_s`."""
    series: Mapped[str] = mapped_column(Text, primary_key=True)
    """What the figures are: `gateway/history/series.py`."""
    subject: Mapped[str] = mapped_column(Text, primary_key=True)
    """A model or the address of an engine."""
    figures: Mapped[list[float]] = mapped_column(ARRAY(Float))


class HistoryWriter(Base):
    """Who writes what every gateway can see; one row.

    Invariant: it is locked by whoever writes, in the transaction that writes: there is one writer
    at a time. `seen` are the engines' counters as last written, so that nothing is written twice
    or lost when another gateway takes over.
    """

    __tablename__ = "history_writers"

    name: Mapped[str] = mapped_column(Text, primary_key=True)
    owner: Mapped[str]
    """A gateway process."""
    seen: Mapped[dict[str, Any]] = mapped_column(JSONB)
    beat_at: Mapped[CreatedAt]
    """When it last wrote; another one may take over once this is old."""
