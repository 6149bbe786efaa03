"""Queries about idempotency keys."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import IdempotencyKey
from store.repositories.statements import forget_old

LIFETIME_S = 86400
"""How long a key means the creation it was first used for."""


@dataclass(frozen=True)
class KeyOwner:
    """Whose key it is, and for what.

    Attributes:
        kind: What is created under it, `file` or `batch`: the same key means different things.
    """

    project_id: str
    kind: str
    key: str


@dataclass(frozen=True)
class EarlierUse:
    """What a key was used for before."""

    fingerprint: str
    object_id: str


async def take(session: AsyncSession, owner: KeyOwner, fingerprint: str) -> EarlierUse | None:
    """Use a key in this transaction; what it was used for, if it was.

    Another transaction that is using the key at the moment is waited for. After none, `settle`
    must follow in the same transaction.
    """
    values = {"project_id": owner.project_id, "kind": owner.kind, "key": owner.key}
    while True:
        taken = await session.scalar(
            text(
                """
                INSERT INTO idempotency_keys AS k (project_id, kind, key, fingerprint, object_id)
                VALUES (:project_id, :kind, :key, :fingerprint, '')
                ON CONFLICT (project_id, kind, key) DO UPDATE
                SET fingerprint = excluded.fingerprint, object_id = '',
                    created_at = statement_timestamp()
                WHERE k.created_at < statement_timestamp() - make_interval(secs => :lifetime_s)
                RETURNING 1
                """
            ),
            {**values, "fingerprint": fingerprint, "lifetime_s": LIFETIME_S},
        )
        if taken:
            return None
        found = await session.execute(
            text(
                "SELECT fingerprint, object_id FROM idempotency_keys"
                " WHERE project_id = :project_id AND kind = :kind AND key = :key"
            ),
            values,
        )
        earlier = found.one_or_none()
        if earlier is not None:  # else it was collected in between: use it
            return EarlierUse(earlier.fingerprint, earlier.object_id)


async def settle(session: AsyncSession, owner: KeyOwner, object_id: str) -> None:
    """Say what was made under a key that this transaction took."""
    await session.execute(
        text(
            "UPDATE idempotency_keys SET object_id = :object_id"
            " WHERE project_id = :project_id AND kind = :kind AND key = :key"
        ),
        {
            "project_id": owner.project_id,
            "kind": owner.kind,
            "key": owner.key,
            "object_id": object_id,
        },
    )


async def collect(session: AsyncSession, limit: int) -> int:
    """Forget up to `limit` keys past their lifetime; how many."""
    return await forget_old(
        session, IdempotencyKey.created_at, older_than_s=LIFETIME_S, limit=limit
    )
