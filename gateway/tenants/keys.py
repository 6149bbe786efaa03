"""Acts on API keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_shapes import may_be_id
from api.errors import Conflict, InvalidRequest
from gateway.auth.roles import ROLES
from gateway.auth.scopes import SCOPES
from gateway.tenants.actor import Action, Actor
from gateway.tenants.checks import KEY_LIMITS, check_lifetime, check_limits, check_name
from gateway.tenants.errors import KeyNotFound
from gateway.tenants.projects import find_project
from store.models import ApiKey, Project
from store.models.key import WRITE_SCOPES
from store.repositories import key as keys
from store.repositories.project import Limit

MAX_GRACE_S: Final = 30 * 86_400
DEFAULT_GRACE_S: Final = 86_400


@dataclass(frozen=True)
class NewKey:
    """What a key shall be.

    Attributes:
        scopes: What it may do in its project. A key with a role may have none.
        role: What it may do with its organisation.
        expires_in_s: How long it is usable; for ever if not said.
        limits: Its own limits.
    """

    name: str
    scopes: Sequence[str] = WRITE_SCOPES
    role: str | None = None
    expires_in_s: int | None = None
    limits: Mapping[str, Limit] = field(default_factory=dict)


async def create_key(
    session: AsyncSession, actor: Actor, project_id: str, wanted: NewKey
) -> tuple[ApiKey, str]:
    """A new key of a project, and its plain text, which is known only now.

    Raises:
        ProjectNotFound: No such project in the organisation.
        Conflict: The project is archived.
        InvalidRequest: The name, a scope, the role, the lifetime or a limit.
    """
    name = check_name(wanted.name)
    scopes = check_scopes(wanted.scopes, role=wanted.role)
    check_limits(wanted.limits)
    project = await find_project(session, actor.organization_id, project_id)
    if project.archived_at is not None:
        raise Conflict("An archived project gets no keys.", current="archived")
    key, plaintext = await keys.create(
        session,
        project.id,
        name,
        scopes,
        role=wanted.role,
        expires_in_s=check_lifetime(wanted.expires_in_s),
        limits=wanted.limits,
    )
    await _record(session, actor, Action.KEY_CREATED, key, {"data": _described(key)})
    return key, plaintext


async def update_key(
    session: AsyncSession,
    actor: Actor,
    key_id: str,
    *,
    scopes: Sequence[str] | None = None,
    expires_in_s: int | None = None,
    limits: Mapping[str, Limit] | None = None,
) -> tuple[ApiKey, Project]:
    """Change a key; what is not given stays as it is.

    Raises:
        KeyNotFound: No such key in the organisation, or it was revoked.
        InvalidRequest: A scope, the lifetime or a limit.
    """
    limits = limits or {}
    check_limits(limits)
    key, project = await find_key(session, actor.organization_id, key_id, lock=True)
    changes: dict[str, Any] = dict(limits)
    if scopes is not None:
        changes["scopes"] = list(check_scopes(scopes or WRITE_SCOPES, role=key.role))
    for column, value in changes.items():
        setattr(key, column, value)
    if expires_in_s is not None:
        key.expires_at = await keys.instant_after(session, check_lifetime(expires_in_s) or 0)
        changes["expires_in_seconds"] = expires_in_s
    await session.flush()
    if changes:
        await _record(session, actor, Action.KEY_UPDATED, key, {"changes_requested": changes})
    return key, project


async def rotate_key(
    session: AsyncSession, actor: Actor, key_id: str, *, grace_s: int = DEFAULT_GRACE_S
) -> tuple[ApiKey, str]:
    """A new key in the place of an old one, which goes on for `grace_s` more seconds at most.

    The new one has the old one's name, project, scopes, role, limits and length of life.

    Raises:
        KeyNotFound: No such key in the organisation, or it was revoked.
        InvalidRequest: The grace is negative or longer than 30 days.
    """
    if not 0 <= grace_s <= MAX_GRACE_S:
        raise InvalidRequest(
            f"grace_seconds must lie between 0 and {MAX_GRACE_S}.", param="grace_seconds"
        )
    old, _ = await find_key(session, actor.organization_id, key_id, lock=True)
    lifetime = None if old.expires_at is None else old.expires_at - old.created_at
    made, plaintext = await keys.create(
        session,
        old.project_id,
        old.name,
        old.scopes,
        role=old.role,
        expires_in_s=None if lifetime is None else max(1, int(lifetime.total_seconds())),
        limits={name: getattr(old, name) for name in KEY_LIMITS},
    )
    if grace_s == 0:
        await keys.revoke(session, old.id)
    else:
        end = await keys.instant_after(session, grace_s)
        old.expires_at = end if old.expires_at is None else min(old.expires_at, end)
        await session.flush()
    data = {"data": {"new_key_id": made.id, "grace_seconds": grace_s}}
    await _record(session, actor, Action.KEY_ROTATED, old, data)
    return made, plaintext


async def revoke_key(session: AsyncSession, actor: Actor, key_id: str) -> ApiKey:
    """End a key for good, within 5 s everywhere, open streams included.

    Raises:
        KeyNotFound: No such key in the organisation, or it was revoked already.
    """
    key, _ = await find_key(session, actor.organization_id, key_id, lock=True)
    await keys.revoke(session, key.id)
    await _record(session, actor, Action.KEY_DELETED, key, None)
    return key


async def find_key(
    session: AsyncSession, organization_id: str, key_id: str, *, lock: bool = False
) -> tuple[ApiKey, Project]:
    """A key of the organisation that was not revoked, and its project.

    Raises:
        KeyNotFound: There is none.
    """
    found = None
    if may_be_id(key_id):
        found = await keys.get(session, organization_id, key_id, lock=lock)
    if found is None or found[0].revoked_at is not None:
        raise KeyNotFound(key_id)
    return found


def check_scopes(scopes: Sequence[str], *, role: str | None) -> tuple[str, ...]:
    """Known scopes, each once, in the order of the table.

    Raises:
        InvalidRequest: One is unknown, the role is, or there is neither scope nor role.
    """
    if role is not None and role not in ROLES:
        raise InvalidRequest(f"There is no such role; there are {_listed(ROLES)}.", param="role")
    if set(scopes) - set(SCOPES):
        raise InvalidRequest(
            f"There is no such scope; there are {_listed(SCOPES)}.", param="scopes"
        )
    if not scopes and role is None:
        raise InvalidRequest("A key needs a scope or a role.", param="scopes")
    return tuple(scope for scope in SCOPES if scope in scopes)


def _listed(words: Mapping[str, object]) -> str:
    return ", ".join(words)


def _described(key: ApiKey) -> dict[str, Any]:
    """What the audit log says of a new key: never its text."""
    said = {
        "name": key.name,
        "prefix": key.prefix,
        "scopes": list(key.scopes),
        "role": key.role,
        "expires_at": None if key.expires_at is None else int(key.expires_at.timestamp()),
        **{name: getattr(key, name) for name in KEY_LIMITS},
    }
    return {name: value for name, value in said.items() if value not in (None, False)}


async def _record(
    session: AsyncSession,
    actor: Actor,
    action: Action,
    key: ApiKey,
    detail: Mapping[str, Any] | None,
) -> None:
    await actor.record(session, action, key.id, project_id=key.project_id, detail=detail)
