"""Indexes made and dropped beside traffic."""

from __future__ import annotations

from typing import Any

from alembic import op


def create(name: str, table: str, columns: list[Any], *, where: Any = None) -> None:
    """Make an index without stopping writers.

    It waits for transactions that are open now, however long; what an attempt that was cut off
    left behind is dropped first.
    """
    with op.get_context().autocommit_block():
        op.execute("SET lock_timeout = 0")
        op.drop_index(name, table_name=table, if_exists=True, postgresql_concurrently=True)
        op.create_index(name, table, columns, postgresql_where=where, postgresql_concurrently=True)
        op.execute("SET lock_timeout = '5s'")


def drop(name: str, table: str) -> None:
    """Drop an index without stopping anybody."""
    with op.get_context().autocommit_block():
        op.drop_index(name, table_name=table, if_exists=True, postgresql_concurrently=True)
