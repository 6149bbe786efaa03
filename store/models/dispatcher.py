"""Dispatchers, and what they and the stages of batches have counted."""

from __future__ import annotations

from sqlalchemy import BigInteger, Text
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base
from store.types import CreatedAt, Instant, TextId


class Dispatcher(Base):
    """One leased dispatcher of one engine.

    Invariant: at most one row per engine is alive (unique `engine_url`); a new owner replaces the
    row and its `id` is the fencing token that every write under the lease carries.
    """

    __tablename__ = "dispatchers"

    id: Mapped[TextId]
    engine_url: Mapped[str] = mapped_column(unique=True)
    acquired_at: Mapped[CreatedAt]
    heartbeat_at: Mapped[Instant]


# --- Dispatch counts: what the dispatchers of an engine have done so far, for metrics.


def _counter() -> Mapped[int]:
    return mapped_column(BigInteger, server_default="0")


class DispatchCount(Base):
    """One row per engine that ever had a dispatcher.

    The `num_*` counters only grow, over every dispatcher the engine had; the others are as of
    `updated_at`, and mean nothing once it is older than a dispatcher may be silent.
    """

    __tablename__ = "dispatch_counts"

    engine_url: Mapped[str] = mapped_column(Text, primary_key=True)
    num_claimed: Mapped[int] = _counter()
    """Rows claimed."""
    num_results: Mapped[int] = _counter()
    """Results accepted."""
    num_retries: Mapped[int] = _counter()
    """Attempts that failed in a way worth repeating."""
    num_fenced: Mapped[int] = _counter()
    """Results refused because the row was not the dispatcher's any more."""
    num_refused: Mapped[int] = _counter()
    """Calls that the engine turned away because it was full (429, 503)."""
    num_losses: Mapped[int] = _counter()
    """Calls that ended with the engine's connection."""
    num_handed_back: Mapped[int] = _counter()
    """Rows taken off the engine for others before it had begun them, or for chat."""
    num_in_flight: Mapped[int] = mapped_column(server_default="0")
    num_unwritten: Mapped[int] = mapped_column(server_default="0")
    """Outcomes that wait to be written."""
    window_rows: Mapped[int] = mapped_column(server_default="0")
    """Rows the dispatcher wants to have at the engine."""
    in_flight_bytes: Mapped[int] = _counter()
    """Lines of the rows in flight."""
    unwritten_bytes: Mapped[int] = _counter()
    """Result lines that wait to be written."""
    updated_at: Mapped[CreatedAt]


# --- Stage counts: what the workers' stages have done so far, for metrics.


class StageCount(Base):
    """One row per stage that ever ran; all but the last two only grow, over every worker."""

    __tablename__ = "stage_counts"

    stage: Mapped[str] = mapped_column(Text, primary_key=True)
    num_runs: Mapped[int] = mapped_column(BigInteger, server_default="0")
    num_failed: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """Of `num_runs`: those that ended in an error."""
    wall_s: Mapped[float] = mapped_column(server_default="0")
    cpu_s: Mapped[float] = mapped_column(server_default="0")
    """CPU time of the worker's process while it ran them, all threads."""
    peak_rss_bytes: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """The most memory that the process of the newest run ever had."""
    ended_at: Mapped[CreatedAt]
    """The newest end."""
