"""`POST /internal/engines`: an engine says that it is there, drains, or leaves."""

from __future__ import annotations

import secrets
from typing import Annotated, Literal

from fastapi import APIRouter, Header
from pydantic import BaseModel, ConfigDict, field_validator

from api.errors import AuthenticationFailed, PermissionDenied
from engine_adapter.client.engine_address import EngineAddress
from gateway.dependencies import DatabaseDep, SettingsDep
from gateway.http.json_route import JsonRoute
from store.repositories import engine as engines

router = APIRouter(include_in_schema=False, route_class=JsonRoute)


class Word(BaseModel):
    """What an engine says of itself; one of a later version may say more."""

    model_config = ConfigDict(extra="ignore")

    url: str
    state: Literal["arrived", "here", "draining", "left"]

    @field_validator("url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        return str(EngineAddress.parse(url))


@router.post("/internal/engines")
async def note_engine(
    word: Word,
    settings: SettingsDep,
    database: DatabaseDep,
    authorization: Annotated[str, Header(include_in_schema=False)] = "",
) -> dict[str, str]:
    """Write down what an engine says; gateways and dispatchers read it within a second.

    Raises:
        PermissionDenied: No token is set.
        AuthenticationFailed: Another token than the one that is set.
    """
    if not settings.engine_token:
        raise PermissionDenied("Engines cannot register: COSERVE_ENGINE_TOKEN is not set.")
    wanted = f"Bearer {settings.engine_token}".encode()
    if not secrets.compare_digest(authorization.encode(), wanted):
        raise AuthenticationFailed("Engines bring the token that COSERVE_ENGINE_TOKEN sets.")
    async with database.unit_of_work() as session:
        if word.state == "arrived":
            await engines.arrive(session, word.url)
        elif word.state == "here":
            await engines.beat(session, word.url)
        elif word.state == "draining":
            await engines.drain(session, word.url)
        else:
            await engines.remove(session, word.url)
    return {"url": word.url, "state": word.state}
