"""The one metadata: naming convention, so that migrations name every constraint alike."""

from __future__ import annotations

from sqlalchemy import MetaData
from sqlalchemy.orm import DeclarativeBase


class Base(DeclarativeBase):
    """Parent of every table."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


def one_of(column: str, words: tuple[str, ...]) -> str:
    """SQL for a CHECK that `column` holds one of `words`."""
    listed = ", ".join(f"'{word}'" for word in words)
    return f"{column} IN ({listed})"
