"""Stage counts: what the workers' stages have done so far, for metrics."""

from __future__ import annotations

from sqlalchemy import BigInteger, Text
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base
from store.types import CreatedAt


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
