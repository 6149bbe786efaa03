"""Who is asking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from gateway.limits.rates import Rates
from store.models import ApiKey, Project
from store.models.organization import DEFAULT_ORGANIZATION_ID

NO_LIMITS = Rates()


@dataclass(frozen=True)
class Principal:
    """The key a request came with, and whose it is.

    Attributes:
        scopes: What it may do in its project (`gateway.auth.scopes`).
        role: What it may do with its organisation, if anything (`gateway.auth.roles`).
        key_name: The key's name, for the audit log.
        key_rates: The key's own limits.
        project_rates: Those of its project, which all its keys share.
        concurrent_requests: How many requests of the project may be in flight at all gateways.
        models: The models that the project may ask for; none: all.
        service_tier: The tier of its requests that name none.
        may_raise_tier: Whether a request may name a better tier than its default.
        flex_wait_s: How long a flex request waits for room before it is refused.
    """

    project_id: str
    key_id: str
    scopes: frozenset[str] = frozenset()
    role: str | None = None
    organization_id: str = DEFAULT_ORGANIZATION_ID
    key_name: str = ""
    key_rates: Rates = NO_LIMITS
    project_rates: Rates = NO_LIMITS
    concurrent_requests: int | None = None
    models: frozenset[str] | None = None
    service_tier: str | None = None
    may_raise_tier: bool = False
    flex_wait_s: int = 0

    @classmethod
    def of(cls, key: ApiKey, project: Project) -> Self:
        """Whoever holds a key of a project."""
        return cls(
            project_id=project.id,
            key_id=key.id,
            scopes=frozenset(key.scopes),
            role=key.role,
            organization_id=project.organization_id,
            key_name=key.name,
            key_rates=Rates(key.requests_per_minute, key.tokens_per_minute),
            project_rates=Rates(project.requests_per_minute, project.tokens_per_minute),
            concurrent_requests=project.concurrent_requests,
            models=None if project.models is None else frozenset(project.models),
            service_tier=key.service_tier or project.service_tier,
            may_raise_tier=key.may_raise_tier,
            flex_wait_s=(
                key.flex_wait_seconds
                if key.flex_wait_seconds is not None
                else project.flex_wait_seconds or 0
            ),
        )

    def may_use(self, model: str) -> bool:
        """Whether its project may ask for this model."""
        return self.models is None or model in self.models
