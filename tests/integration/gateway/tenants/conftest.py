"""Tenants over HTTP: keys of two organisations, through the official client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from store.models import DEFAULT_PROJECT_ID
from store.repositories import key as keys
from store.repositories import organization as organizations
from store.repositories import project as projects
from store.session import Database
from tests.fixtures.live_gateway import Api


@dataclass(frozen=True)
class Tenants:
    """A gateway and who knocks at it.

    Attributes:
        database: The gateway's.
        admin: A key with the role admin, and every scope, in the default organisation.
        viewer: One with the role viewer and no scope.
        plain: One without a role.
        stranger: One like `admin`, in another organisation.
        stranger_project: Its project.
    """

    api: Api
    database: Database
    admin: str
    viewer: str
    plain: str
    stranger: str
    stranger_project: str

    def client(self, key: str | None = None) -> AsyncOpenAI:
        """The official client; one key serves as API key and as admin key."""
        key = key or self.admin
        return AsyncOpenAI(
            base_url=self.api.base_url, api_key=key, admin_api_key=key, max_retries=0
        )

    def http(self, key: str | None = None, **more: Any) -> httpx.AsyncClient:
        """A plain client."""
        headers = {"authorization": f"Bearer {key or self.admin}"}
        return httpx.AsyncClient(base_url=self.api.base_url, headers=headers, **more)


@pytest.fixture
async def tenants(api: Api, database: Database) -> Tenants:
    """Two organisations, three kinds of key."""
    async with database.unit_of_work() as session:
        _, admin = await keys.create(session, DEFAULT_PROJECT_ID, "ada", role="admin")
        _, viewer = await keys.create(session, DEFAULT_PROJECT_ID, "vi", (), role="viewer")
        elsewhere = await organizations.create(session, "elsewhere")
        project = await projects.create(session, "theirs", elsewhere.id)
        _, stranger = await keys.create(session, project.id, "eve", role="admin")
    return Tenants(api, database, admin, viewer, api.key, stranger, project.id)
