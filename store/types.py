"""Identifiers and column types shared by every table."""

from __future__ import annotations

import secrets
import time
from datetime import datetime
from typing import Annotated

from sqlalchemy import DateTime, Text, func
from sqlalchemy.orm import mapped_column

Instant = Annotated[datetime, mapped_column(DateTime(timezone=True))]
"""A UTC instant; such columns end in `_at`."""

CreatedAt = Annotated[
    datetime, mapped_column(DateTime(timezone=True), server_default=func.statement_timestamp())
]
"""Set by the database's clock, so that ordering never depends on a host's."""

TextId = Annotated[str, mapped_column(Text, primary_key=True)]

_RANDOM_BITS = 48


def new_id(prefix: str) -> str:
    """A public id: `prefix` and 24 hex digits, ordered by creation time (48 bits of ms, 48 random).

    Opaque and URL-safe (row Z-04).
    """
    ms = time.time_ns() // 1_000_000 & (1 << 48) - 1
    return f"{prefix}{ms:012x}{secrets.randbits(_RANDOM_BITS):012x}"
