"""Queries about API keys."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, func, or_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import ApiKey, Project
from store.models.key import WRITE_SCOPES
from store.repositories.statements import now
from store.types import new_id

KEY_PREFIX = "sk-coserve-"
_SHOWN_CHARS = len(KEY_PREFIX) + 4


def hash_of(plaintext: str) -> bytes:
    """What is kept of a key: sha256, 32 bytes. The key's 256 random bits need no salt."""
    return hashlib.sha256(plaintext.encode("utf-8", "surrogatepass")).digest()


async def create(  # noqa: PLR0913
    session: AsyncSession,
    project_id: str,
    name: str,
    scopes: Sequence[str] = WRITE_SCOPES,
    *,
    role: str | None = None,
    expires_in_s: int | None = None,
    limits: Mapping[str, Any] | None = None,
    plaintext: str | None = None,
) -> tuple[ApiKey, str]:
    """A new key and its plain text, which is known only now.

    Args:
        session: The caller's transaction.
        project_id: Owner.
        name: For people.
        scopes: What it may do in its project; everything if not said.
        role: What it may do with its organisation; nothing if not said.
        expires_in_s: How long it is usable; for ever if not said.
        limits: Columns of its own limits.
        plaintext: Use this secret instead of a random one (a key that lives in a file already).
    """
    plaintext = plaintext or KEY_PREFIX + secrets.token_urlsafe(32)
    key = ApiKey(
        id=new_id("key_"),
        project_id=project_id,
        name=name,
        prefix=plaintext[:_SHOWN_CHARS],
        key_hash=hash_of(plaintext),
        scopes=list(scopes),
        role=role,
        expires_at=None if expires_in_s is None else await instant_after(session, expires_in_s),
        **(limits or {}),
    )
    session.add(key)
    await session.flush()
    await session.refresh(key)
    return key, plaintext


def _usable() -> Select[ApiKey, Project]:
    return (
        select(ApiKey, Project)
        .join(Project, Project.id == ApiKey.project_id)
        .where(
            ApiKey.revoked_at.is_(None),
            or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > func.statement_timestamp()),
            Project.archived_at.is_(None),
        )
    )


async def find_by_hash(session: AsyncSession, key_hash: bytes) -> tuple[ApiKey, Project] | None:
    """The usable key with this hash, and its project."""
    found = await session.execute(_usable().where(ApiKey.key_hash == key_hash))
    row = found.one_or_none()
    return None if row is None else (row[0], row[1])


async def find_by_plaintext(session: AsyncSession, plaintext: str) -> ApiKey | None:
    """The usable key with this plain text."""
    found = await find_by_hash(session, hash_of(plaintext))
    return None if found is None else found[0]


async def find_operator(session: AsyncSession, key_id: str) -> tuple[ApiKey, Project] | None:
    """The usable key with this id if it has a role, and its project."""
    found = await session.execute(_usable().where(ApiKey.id == key_id, ApiKey.role.is_not(None)))
    row = found.one_or_none()
    return None if row is None else (row[0], row[1])


async def unusable(session: AsyncSession, key_ids: Collection[str]) -> set[str]:
    """Those of these keys that open nothing any more."""
    found = await session.execute(
        _usable().with_only_columns(ApiKey.id).where(ApiKey.id.in_(key_ids))
    )
    return set(key_ids) - set(found.scalars())


async def instant_after(session: AsyncSession, seconds: int) -> datetime:
    """The instant so many seconds from now, by the database's clock."""
    return await now(session) + timedelta(seconds=seconds)


async def get(
    session: AsyncSession, organization_id: str, key_id: str, *, lock: bool = False
) -> tuple[ApiKey, Project] | None:
    """The organisation's key of this id, revoked ones too, and its project."""
    statement = (
        select(ApiKey, Project)
        .join(Project, Project.id == ApiKey.project_id)
        .where(ApiKey.id == key_id, Project.organization_id == organization_id)
    )
    if lock:
        statement = statement.with_for_update(of=ApiKey)
        statement = statement.execution_options(populate_existing=True)
    row = (await session.execute(statement)).one_or_none()
    return None if row is None else (row[0], row[1])


async def find(session: AsyncSession, key_id: str) -> tuple[ApiKey, Project] | None:
    """A key of any organisation, and its project: for the command line of the host."""
    found = await session.execute(
        select(ApiKey, Project)
        .join(Project, Project.id == ApiKey.project_id)
        .where(ApiKey.id == key_id)
    )
    row = found.one_or_none()
    return None if row is None else (row[0], row[1])


async def page(  # noqa: PLR0913
    session: AsyncSession,
    organization_id: str,
    *,
    project_id: str | None = None,
    operators: bool | None = None,
    include_revoked: bool = False,
    newest_first: bool = False,
    after: ApiKey | None = None,
    limit: int | None = None,
) -> list[tuple[ApiKey, Project]]:
    """Keys of an organisation and their projects.

    Args:
        session: An open transaction.
        organization_id: Whose keys.
        project_id: Only those of this project.
        operators: Only those with a role, or only those without.
        include_revoked: Revoked ones too.
        newest_first: Order by age.
        after: Only those that follow this one.
        limit: How many at most.
    """
    statement = (
        select(ApiKey, Project)
        .join(Project, Project.id == ApiKey.project_id)
        .where(Project.organization_id == organization_id)
    )
    if project_id is not None:
        statement = statement.where(ApiKey.project_id == project_id)
    if operators is not None:
        statement = statement.where(ApiKey.role.is_not(None) == operators)
    if not include_revoked:
        statement = statement.where(ApiKey.revoked_at.is_(None))
    place = tuple_(ApiKey.created_at, ApiKey.id)
    if after is not None:
        cursor = (after.created_at, after.id)
        statement = statement.where(place < cursor if newest_first else place > cursor)
    order = (ApiKey.created_at, ApiKey.id)
    statement = statement.order_by(*(c.desc() for c in order) if newest_first else order)
    rows = (await session.execute(statement.limit(limit))).all()
    return [(key, project) for key, project in rows]


async def list_all(session: AsyncSession) -> list[tuple[ApiKey, Project]]:
    """Every key of every organisation, revoked ones too, oldest first: for the host."""
    found = await session.execute(
        select(ApiKey, Project)
        .join(Project, Project.id == ApiKey.project_id)
        .order_by(ApiKey.created_at, ApiKey.id)
    )
    return [(key, project) for key, project in found.all()]


async def revoke(session: AsyncSession, key_id: str) -> bool:
    """Make a key unusable; whether there was such a usable key."""
    statement = (
        update(ApiKey)
        .where(ApiKey.id == key_id, ApiKey.revoked_at.is_(None))
        .values(revoked_at=func.statement_timestamp())
        .returning(ApiKey.id)
    )
    return (await session.execute(statement)).scalar_one_or_none() is not None


async def touch(session: AsyncSession, key_ids: Sequence[str]) -> None:
    """Note that these keys were used just now."""
    await session.execute(
        update(ApiKey).where(ApiKey.id.in_(key_ids)).values(last_used_at=func.statement_timestamp())
    )
