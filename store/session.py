"""One database handle per process or slice; one transaction per request or task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Final

import psycopg
from sqlalchemy import event, text
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)

from store.bounded_connection import CONNECT_LIMIT_S, BoundedConnection
from store.failures import is_full, is_read_only

ACTOR: Final = "actor"
"""Where a session's `info` says who acts in it."""


class Database:
    """An async SQLAlchemy engine and its sessions.

    Create it inside the process (after a fork) and inside the event loop that uses it.

    Args:
        url: Where.
        pool_size: Connections that are kept.
        max_overflow: How many more there may be at once.
        ask_first: Each connection is asked for a sign of life before it is used again: a round
            trip per transaction. Without it the first use of one that died fails, which renews
            them all: for whoever repeats its transactions anyway.
        prepares: Statements that come again are prepared on the server: less work for both. It
            needs a connection of one's own, which a pooler in transaction mode does not give.
        limit_s: Whoever has waited so long for an answer is told that the server is lost
            (`bounded_connection`), by the same errors as of one that died. None: never.

    Attributes:
        met_full: Called when the server has no room for a write, whoever meets it.
        place: Around each transaction: what it has to wait for before it takes a connection.
    """

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 5,
        max_overflow: int = 5,
        ask_first: bool = True,
        prepares: bool = True,
        limit_s: float | None = None,
    ) -> None:
        limits: dict[str, Any] = {}
        connection: dict[str, Any] = {} if prepares else {"prepare_threshold": None}
        if limit_s is not None:
            connection["async_creator_fn"] = BoundedConnection.within(limit_s).connect
            connection["connect_timeout"] = CONNECT_LIMIT_S
            limits["pool_timeout"] = limit_s
        self.engine: AsyncEngine = create_async_engine(
            url,
            pool_size=pool_size,
            max_overflow=max_overflow,
            pool_pre_ping=ask_first,
            hide_parameters=True,
            connect_args=connection,
            **limits,
        )
        self.met_full: Callable[[], None] | None = None
        self.place: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
        event.listen(self.engine.sync_engine, "handle_error", self._on_error, retval=True)
        self._sessions = async_sessionmaker(self.engine, expire_on_commit=False)
        steady = self.engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )
        self._snapshots = async_sessionmaker(steady, expire_on_commit=False)

    def _on_error(self, context: ExceptionContext) -> OperationalError | None:
        orig = context.original_exception
        if self.met_full is not None and is_full(orig):
            self.met_full()
        if not is_read_only(orig):
            return None
        # The server is not the one that it was: all connections to it are made anew.
        context.is_disconnect = True
        return OperationalError(context.statement, None, orig, hide_parameters=True)

    @asynccontextmanager
    async def unit_of_work(self, *, actor: str | None = None) -> AsyncIterator[AsyncSession]:
        """One transaction: committed when the block ends, rolled back when it raises.

        Args:
            actor: For whom, in words for a batch's timeline; none: for the service itself.
        """
        async with self.place(), _heard_cancellation(), self._sessions.begin() as session:
            session.info[ACTOR] = actor
            yield session

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncSession]:
        """Only reads, all as of one instant: for answers made of several queries."""
        async with self.place(), _heard_cancellation(), self._snapshots.begin() as session:
            yield session

    async def ping(self) -> None:
        """Raise unless the server answers and takes writes."""
        async with self._sessions.begin() as session:
            if not await takes_writes(session):
                read_only = psycopg.errors.ReadOnlySqlTransaction("the server takes no writes")
                raise OperationalError(None, None, read_only)

    async def dispose(self) -> None:
        await self.engine.dispose()


async def takes_writes(session: AsyncSession) -> bool:
    """Whether the server takes writes, asked in any transaction: false of a standby."""
    return bool(
        await session.scalar(
            text(
                "SELECT NOT (pg_is_in_recovery()"
                " OR current_setting('default_transaction_read_only')::boolean)"
            )
        )
    )


@asynccontextmanager
async def _heard_cancellation() -> AsyncIterator[None]:
    """A cancellation leaves the block as one, also where the server was lost at the same time.

    A rollback over a lost connection puts its own error in the place of what made it necessary;
    whoever repeats what failed would never hear that it was called off.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        yield
    except SQLAlchemyError as error:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError from error
        raise
