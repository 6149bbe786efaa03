"""`/healthz` (the process is up) and `/readyz` (what it needs is there)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

from fastapi import APIRouter, Request
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import JSONResponse

from engine_adapter.client.pool import EnginePool
from gateway.dependencies import DatabaseDep, EnginesDep

router = APIRouter(tags=["health"])
logger = logging.getLogger(__name__)

_PROBE_S = 3.0


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz")
async def readyz(request: Request, database: DatabaseDep, engines: EnginesDep) -> JSONResponse:
    """Whether database, broker and engine answer, each with a reason; 200 if all do, else 503."""
    probes = {
        "database": asyncio.ensure_future(_reason(database.ping())),
        "broker": asyncio.ensure_future(_reason(request.app.state.broker.ping())),
    }
    # One that hangs ends by a limit of its own: whoever waited for its end, or for the end of its
    # cancellation, would answer too late.
    await asyncio.wait(probes.values(), timeout=_PROBE_S)
    parts = {
        name: _part(probe.result() if probe.done() else f"did not answer within {_PROBE_S:.0f} s")
        for name, probe in probes.items()
    }
    parts["engine"] = {**_part(_why_no_engine(engines)), "profile": _profile(engines)}
    ready = all(part["ok"] for part in parts.values())
    body: dict[str, Any] = {
        "status": "ready" if ready else "not ready",
        "parts": parts,
        "models": [
            {"id": model.id, "context_tokens": model.context_tokens, "up": model.up}
            for model in engines.models()
        ],
    }
    return JSONResponse(body, status_code=200 if ready else 503)


def _why_no_engine(engines: EnginePool) -> str:
    """Empty while at least one engine can be used, which is enough to serve."""
    if any(member.open for member in engines.members):
        return ""
    if not engines.members:
        return "no engine is named in ENGINE_URLS or registered"
    down = [member for member in engines.members if not member.up]
    return f"no engine can be used: {down[0].why}" if down else "every engine is draining"


def _profile(engines: EnginePool) -> str | None:
    """`measuring` while an engine measures how long its steps take; it serves meanwhile."""
    found: set[str] = set()
    for member in engines.members:
        if member.up and member.facts is not None:
            state = member.facts.reported("profile.state")
            if isinstance(state, str):
                found.add(state)
    return "measuring" if "measuring" in found else min(found, default=None)


def _part(why: str) -> dict[str, Any]:
    return {"ok": not why, "why": why or None}


async def _reason(probe: Awaitable[Any]) -> str:
    """Why a probe failed, empty if it did not; errors' own words may hold addresses and keys."""
    try:
        await probe
    except (SQLAlchemyError, RedisError, OSError) as error:
        logger.warning("a probe of /readyz failed: %s", type(error).__name__)
        return "cannot be reached"
    return ""
