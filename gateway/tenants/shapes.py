"""Wire shapes of the administration API: OpenAI's, and under `coserve` what it has no word for.

Source: the types of the official client, `openai/types/admin/organization`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from api.batch_shapes import unix_s
from store.models import ApiKey, AuditEntry, Project


class Identified(BaseModel):
    """Whatever has an id."""

    id: str


Item = TypeVar("Item", bound=Identified)


class Listing(BaseModel, Generic[Item]):
    """A page; all five keys always."""

    object: Literal["list"] = "list"
    data: list[Item]
    first_id: str | None
    last_id: str | None
    has_more: bool

    @classmethod
    def of(cls, items: Sequence[Item], *, limit: int) -> Self:
        """The first `limit` items; one more was read to know whether it goes on."""
        shown = list(items[:limit])
        ids = [item.id for item in (*shown[:1], *shown[-1:])]
        return cls(
            data=shown,
            first_id=ids[0] if ids else None,
            last_id=ids[-1] if ids else None,
            has_more=len(items) > limit,
        )


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Limits(_Body):
    """What a key and a project may both have; null is none of its own."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    service_tier: str | None = None
    """Of requests that name none."""
    flex_wait_seconds: int | None = None
    """How long flex requests wait for room before they are refused."""

    def given(self) -> dict[str, Any]:
        return self.model_dump(include=self.model_fields_set)


class KeyLimits(Limits):
    """A key's own limits."""

    may_raise_tier: bool = False
    """Whether a request may name a better tier than its default."""


class ProjectLimits(Limits):
    """Limits that all keys of a project share."""

    batch_enqueued_token_limit: int | None = None
    concurrent_requests: int | None = None
    live_batches: int | None = None
    batches_per_hour: int | None = None
    stored_bytes: int | None = None
    models: list[str] | None = None
    """Those that it may ask for; null: all that are served."""


class CreateProject(_Body):
    """What `POST /organization/projects` reads."""

    name: str
    coserve: ProjectLimits = ProjectLimits()


class UpdateProject(_Body):
    """What `POST /organization/projects/{project_id}` reads."""

    name: str | None = None
    coserve: ProjectLimits = ProjectLimits()


class CreateKey(_Body):
    """What `POST /organization/projects/{project_id}/api_keys` reads. The route is ours."""

    name: str
    scopes: Annotated[list[str] | None, Field(max_length=32)] = None
    expires_in_seconds: int | None = None
    coserve: KeyLimits = KeyLimits()


class UpdateKey(_Body):
    """What `POST /organization/projects/{project_id}/api_keys/{key_id}` reads."""

    scopes: Annotated[list[str] | None, Field(max_length=32)] = None
    expires_in_seconds: int | None = None
    coserve: KeyLimits = KeyLimits()


class RotateKey(_Body):
    """What `POST .../api_keys/{key_id}/rotate` reads. The route is ours."""

    grace_seconds: int | None = None


class CreateAdminKey(_Body):
    """What `POST /organization/admin_api_keys` reads; the role is ours."""

    name: str
    expires_in_seconds: int | None = None
    role: str = "admin"


class ProjectObject(Identified):
    """One project."""

    object: Literal["organization.project"] = "organization.project"
    name: str
    created_at: int
    archived_at: int | None
    status: Literal["active", "archived"]
    coserve: ProjectLimits

    @classmethod
    def of(cls, project: Project) -> Self:
        """The wire shape of a row."""
        return cls(
            id=project.id,
            name=project.name,
            created_at=int(project.created_at.timestamp()),
            archived_at=unix_s(project.archived_at),
            status="active" if project.archived_at is None else "archived",
            coserve=ProjectLimits(
                requests_per_minute=project.requests_per_minute,
                tokens_per_minute=project.tokens_per_minute,
                batch_enqueued_token_limit=project.batch_enqueued_token_limit,
                concurrent_requests=project.concurrent_requests,
                live_batches=project.live_batches,
                batches_per_hour=project.batches_per_hour,
                stored_bytes=project.stored_bytes,
                models=project.models,
                service_tier=project.service_tier,
                flex_wait_seconds=project.flex_wait_seconds,
            ),
        )


class KeyExtension(KeyLimits):
    """What a key may do here."""

    scopes: list[str]


class ProjectKeyObject(Identified):
    """One key of a project. It belongs to the project, as a service account's does."""

    object: Literal["organization.project.api_key"] = "organization.project.api_key"
    name: str
    redacted_value: str
    created_at: int
    expires_at: int | None
    last_used_at: int | None
    owner: dict[str, Any]
    owner_project_access: Literal["active", "inactive"]
    coserve: KeyExtension
    value: str | None = Field(default=None, exclude_if=lambda value: value is None)
    """The key itself: only in the reply that made it."""

    @classmethod
    def of(cls, key: ApiKey, project: Project, value: str | None = None) -> Self:
        """The wire shape of a row."""
        created_at = int(key.created_at.timestamp())
        account = {"id": key.id, "name": key.name, "role": "member", "created_at": created_at}
        return cls(
            **_common(key),
            owner={"type": "service_account", "service_account": account},
            owner_project_access="active" if project.archived_at is None else "inactive",
            coserve=KeyExtension(
                scopes=key.scopes,
                requests_per_minute=key.requests_per_minute,
                tokens_per_minute=key.tokens_per_minute,
                service_tier=key.service_tier,
                flex_wait_seconds=key.flex_wait_seconds,
                may_raise_tier=key.may_raise_tier,
            ),
            value=value,
        )


class AdminKeyObject(Identified):
    """One operator's key."""

    object: Literal["organization.admin_api_key"] = "organization.admin_api_key"
    name: str
    redacted_value: str
    created_at: int
    expires_at: int | None
    last_used_at: int | None
    owner: dict[str, Any]
    value: str | None = Field(default=None, exclude_if=lambda value: value is None)

    @classmethod
    def of(cls, key: ApiKey, value: str | None = None) -> Self:
        """The wire shape of a row; the owner is the key's name, as operators have no other."""
        common = _common(key)
        owner = {
            "type": "user",
            "object": "organization.user",
            "id": key.id,
            "name": key.name,
            "created_at": common["created_at"],
            "role": key.role,
        }
        return cls(**common, owner=owner, value=value)


class Deleted(Identified):
    """What a deletion answers."""

    object: str
    deleted: Literal[True] = True


def _common(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "redacted_value": f"{key.prefix}***",
        "created_at": int(key.created_at.timestamp()),
        "expires_at": unix_s(key.expires_at),
        "last_used_at": unix_s(key.last_used_at),
    }


def audit_object(entry: AuditEntry, project_name: str | None) -> dict[str, Any]:
    """One entry of the audit log; the key named like its type holds what the act was about."""
    about: Mapping[str, Any] = {"id": entry.target_id, **(entry.detail or {})}
    project = None
    if entry.project_id is not None:
        project = {"id": entry.project_id, "name": project_name}
    return {
        "id": entry.id,
        "object": "organization.audit_log",
        "type": entry.action,
        "effective_at": int(entry.created_at.timestamp()),
        "project": project,
        "actor": _actor(entry),
        entry.action: about,
        "coserve": {
            "source": entry.source,
            "actor_name": entry.actor_name,
            "address": entry.address,
            "request_id": entry.request_id,
        },
    }


def _actor(entry: AuditEntry) -> dict[str, Any]:
    if entry.source == "api":
        account = {"id": entry.actor_key_id}
        key = {"id": entry.actor_key_id, "type": "service_account", "service_account": account}
        return {"type": "api_key", "api_key": key}
    user = {"id": entry.actor_key_id, "email": None}
    return {"type": "session", "session": {"user": user, "ip_address": entry.address}}
