"""Queries about requests that were at an engine when it was lost."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

FORGET_S: Final = 86_400.0
"""A request is suspected for so long after an engine was last lost with it."""

MAX_SUSPECTS: Final = 1000
"""More are not kept: those with the fewest losses go first, and of these the oldest."""

_MAX_LOSSES: Final = 32_767
_TRIALS_LOCK: Final = 7_316_042
"""Key of the advisory lock under which trials are begun."""


@dataclass(frozen=True, slots=True)
class Loss:
    """An engine was lost while a request was there.

    Attributes:
        digest: Of the request.
        engine_url: The engine.
        sent_s: How long ago the request was sent there.
        lost_s: How long ago it was lost.
    """

    digest: bytes
    engine_url: str
    sent_s: float
    lost_s: float


@dataclass(frozen=True, slots=True)
class SuspectState:
    """What is known of one request.

    Attributes:
        num_losses: How many times an engine was lost while one like it was there.
        engine_url: The engine that was lost last.
        lost_s: How long ago that was.
    """

    digest: bytes
    num_losses: int
    engine_url: str
    lost_s: float


async def note(session: AsyncSession, losses: Collection[Loss]) -> None:
    """Count losses.

    What was sent to an engine before that was lost, by the record, was there at that same loss: it
    does not count again.
    """
    for loss in sorted(losses, key=lambda one: one.digest):
        await session.execute(
            text(
                """
                INSERT INTO suspects AS s (digest, num_losses, engine_url, lost_at)
                VALUES (:digest, 1, :url, statement_timestamp() - make_interval(secs => :lost_s))
                ON CONFLICT (digest) DO UPDATE SET
                  num_losses = LEAST(s.num_losses + 1, :most), engine_url = excluded.engine_url,
                  lost_at = excluded.lost_at, tried_at = NULL
                WHERE s.engine_url <> excluded.engine_url
                  OR s.lost_at < statement_timestamp() - make_interval(secs => :sent_s)
                """
            ),
            {
                "digest": loss.digest,
                "url": loss.engine_url,
                "sent_s": loss.sent_s,
                "lost_s": loss.lost_s,
                "most": _MAX_LOSSES,
            },
        )
    await session.execute(
        text(
            """
            DELETE FROM suspects
            WHERE lost_at < statement_timestamp() - make_interval(secs => :forget_s)
               OR digest IN (SELECT digest FROM suspects
                             ORDER BY num_losses DESC, lost_at DESC OFFSET :most)
            """
        ),
        {"forget_s": FORGET_S, "most": MAX_SUSPECTS},
    )


async def known(session: AsyncSession) -> list[SuspectState]:
    """Every request that is suspected."""
    found = await session.execute(
        text(
            """
            SELECT digest, num_losses, engine_url,
                   extract(epoch FROM statement_timestamp() - lost_at)::float8 AS lost_s
            FROM suspects
            WHERE lost_at > statement_timestamp() - make_interval(secs => :forget_s)
            LIMIT :most
            """
        ),
        {"forget_s": FORGET_S, "most": 2 * MAX_SUSPECTS},
    )
    return [SuspectState(bytes(one.digest), *one[1:]) for one in found]


async def condemn(session: AsyncSession, digests: Collection[bytes], *, num_losses: int) -> None:
    """An engine was lost with each of these while nothing else was there, so many times in all."""
    await session.execute(
        text(
            """
            INSERT INTO suspects AS s (digest, num_losses, engine_url, lost_at)
            SELECT digest, :num_losses, '', statement_timestamp()
            FROM unnest(CAST(:digests AS bytea[])) AS digest ORDER BY digest
            ON CONFLICT (digest) DO UPDATE SET
              num_losses = GREATEST(s.num_losses, excluded.num_losses),
              lost_at = excluded.lost_at, tried_at = NULL
            """
        ),
        {"digests": list(digests), "num_losses": num_losses},
    )


async def lost_often(session: AsyncSession, *, num_losses: int) -> frozenset[bytes]:
    """Requests with which engines were lost so many times, lately."""
    found = await session.execute(
        text(
            """
            SELECT digest FROM suspects
            WHERE num_losses >= :num_losses
              AND lost_at > statement_timestamp() - make_interval(secs => :forget_s)
            LIMIT :most
            """
        ),
        {"num_losses": num_losses, "forget_s": FORGET_S, "most": 2 * MAX_SUSPECTS},
    )
    return frozenset(bytes(digest) for digest in found.scalars())


async def begin_trial(
    session: AsyncSession, digests: Sequence[bytes], *, hold_s: float, trial_s: float
) -> bool:
    """Whether these may run now: none was lost in the last `hold_s`, and no trial is under way.

    Args:
        session: An open transaction.
        digests: Requests that are suspected.
        hold_s: How long after a loss no trial begins.
        trial_s: A trial counts as under way for so long, unless it ends before.
    """
    await session.execute(
        text("SELECT pg_advisory_xact_lock(:key)"), {"key": _TRIALS_LOCK}
    )  # two gateways would each find no trial of the other
    found = await session.execute(
        text(
            """
            UPDATE suspects SET tried_at = statement_timestamp()
            WHERE digest = ANY(:digests) AND NOT EXISTS (
              SELECT 1 FROM suspects
              WHERE tried_at > statement_timestamp() - make_interval(secs => :trial_s)
                 OR (digest = ANY(:digests)
                     AND lost_at > statement_timestamp() - make_interval(secs => :hold_s)))
            RETURNING digest
            """
        ),
        {"digests": list(digests), "hold_s": hold_s, "trial_s": trial_s},
    )
    return bool(found.all())


async def acquit(session: AsyncSession, digests: Sequence[bytes]) -> None:
    """An engine has answered these: they are suspected no more."""
    await session.execute(
        text("DELETE FROM suspects WHERE digest = ANY(:digests)"), {"digests": list(digests)}
    )
