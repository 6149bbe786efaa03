"""Three questions, none of which needs a key.

/healthz   is the process up?               no: it should be started again
/readyz    should this gateway get traffic? no: it is starting, stopping, or a loop of it is down
           ?chat=true: no as well while no engine can be used
/statusz   does what stands behind answer?  no: somebody should look, and sending requests to
           another gateway would not help, which has the same database, broker and engines

Where every engine is drained or away, /readyz says so and is 200 all the same: a balancer that took
all gateways out would cut off files, batches and the dashboard, by which the drain can be ended,
and leave clients without the error that says when to try again. Who has another installation to
send chat to asks with `?chat=true`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterator
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Request
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import State
from starlette.responses import RedirectResponse, Response

from engine_adapter.client.pool import EnginePool
from gateway.dependencies import EnginesDep, LoopsDep, StorageDep
from gateway.http.json_response import JsonResponse
from gateway.verdict.judge import STAGE_LATE_S, judge
from gateway.verdict.reading import facts_of
from service.broker import why_refused
from service.shared_poll import SharedPoll
from store.failures import why_away
from store.repositories import overdue
from store.repositories import stage as stages
from store.session import Database

router = APIRouter(tags=["health"])
logger = logging.getLogger(__name__)

_PROBE_S = 3.0
STATUS_S = 0.1
"""Looks are so far apart; whoever asks in between waits for the next."""

STAGE_OVERDUE_S = STAGE_LATE_S
"""Of a batch that wants a worker. Thousands of small batches of one project may cause it too."""


@router.get("/", include_in_schema=False)
async def front(request: Request) -> Response:
    """A browser is led to the dashboard, whatever else asks is told where things are."""
    if "text/html" in request.headers.get("accept", ""):
        return RedirectResponse("/admin/", 303)
    return JsonResponse(
        {
            "name": "coserve",
            "version": version("coserve"),
            "api": "/v1",
            "dashboard": "/admin/",
            "description": "/openapi.json",
            "health": "/healthz",
        }
    )


@router.get("/health", include_in_schema=False)
@router.get("/ping", include_in_schema=False)
@router.get("/v1/health", include_in_schema=False)
@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/version")
async def service_version(request: Request) -> dict[str, str]:
    """The service's version."""
    return {"version": request.app.version}


@router.get("/readyz")
async def readyz(
    request: Request,
    engines: EnginesDep,
    storage: StorageDep,
    loops: LoopsDep,
    chat: bool = False,
) -> JsonResponse:
    """Whether this gateway should get requests.

    Not while it stops, before it asked around, or while a loop of its own is down; with
    `chat=true` not while no engine can be used, either.
    """
    status = "ready"
    no_engine = _why_no_engine(engines)
    if getattr(request.app.state, "stopping", False):
        status = "stopping"
    elif not engines.asked:
        status = "starting"
    elif loops.down:
        status = "failing"
    elif chat and no_engine:
        status = "no_engine"
    body: dict[str, Any] = {"status": status}
    if status == "failing":
        body["loops_down"] = loops.down
    if no_engine and status != "starting":
        body["no_engine"] = no_engine
    if full := storage.full:
        # Said, and no reason to stay away: chat needs no room, and every gateway has the same.
        body["storage_full"] = full
    return JsonResponse(body, status_code=200 if status == "ready" else 503)


@router.get("/statusz")
async def statusz(request: Request) -> JsonResponse:
    """Whether database, broker and engine answer, each with a reason; 200 if all do, else 503.

    `verdict` says what the dashboard's overview says, without the names of tenants. `degraded`
    with 200: all answer, and requests or batches suffer all the same.
    """
    state = request.app.state
    shared = state.polls.setdefault("status", SharedPoll(partial(_status, state), every_s=STATUS_S))
    body, status_code = await shared.joined()
    return JsonResponse(body, status_code=status_code)


async def _status(state: State) -> tuple[dict[str, Any], int]:
    """What /statusz says, and with which status: a look at everything, for all who ask by then."""
    database: Database = state.database
    engines: EnginePool = state.engines
    probes = {
        "database": asyncio.ensure_future(_reason(database.ping())),
        "broker": asyncio.ensure_future(_reason(state.broker.ping())),
        "stages": asyncio.ensure_future(_why_stages_wait(database)),
    }
    late = asyncio.ensure_future(_overdue(database))
    known = asyncio.ensure_future(state.verdicts.known())
    # One that hangs ends by a limit of its own: whoever waited for its end, or for the end of its
    # cancellation, would answer too late.
    await asyncio.wait((*probes.values(), late, known), timeout=_PROBE_S)
    parts = {
        name: _part(probe.result() if probe.done() else f"did not answer within {_PROBE_S:.0f} s")
        for name, probe in probes.items()
    }
    parts["engine"] = {
        **_part(_why_no_engine(engines)),
        "profile": _profile(engines),
        "policy_errors": _policy_errors(engines),
        "versions": _versions(engines),
    }
    answers = all(part["ok"] for name, part in parts.items() if name != "stages")
    facts = facts_of(
        state,
        known.result() if known.done() else None,
        broker_answers=parts["broker"]["ok"],
    )
    only_reads = facts.database_answers and not facts.database_takes_writes
    verdict = judge(replace(facts, database_answers=parts["database"]["ok"] or only_reads))
    troubles: dict[str, Any] = {}
    if down := state.loops.down:
        troubles["loops_down"] = down
        parts["loops"] = _part(f"of this gateway failing: {', '.join(down)}; its log says why")
    if full := state.storage.full:
        troubles["storage_full"] = full
    if unusable := state.registry.unusable:
        # Only how many: what is no address may hold a password.
        troubles["unusable_engines"] = len(unusable)
    suffers = verdict.degraded or troubles or not parts["stages"]["ok"]
    body: dict[str, Any] = {
        "status": "ok" if answers and not suffers else "degraded",
        "verdict": verdict.unnamed(),
        "parts": parts,
        "models": [
            {"id": model.id, "context_tokens": model.context_tokens, "up": model.up} | model.told()
            for model in engines.models()
        ],
        **troubles,
    }
    if late.done() and (overdue_now := late.result()):
        # Said, and no reason for 503: nobody's request suffers.
        body["collection_overdue"] = overdue_now
    return body, 200 if answers else 503


async def _why_stages_wait(database: Database) -> str:
    """Empty while workers take what batches want; also where the database does not say."""
    try:
        async with database.unit_of_work() as session:
            oldest_s = await stages.oldest_due_s(session)
    except (SQLAlchemyError, OSError):
        return ""
    if oldest_s is None or oldest_s < STAGE_OVERDUE_S:
        return ""
    return f"a batch has waited {oldest_s:.0f} s for a worker of the stages"


async def _overdue(database: Database) -> dict[str, int]:
    """What should have been removed an hour ago, by kind."""
    try:
        async with database.unit_of_work() as session:
            found = await overdue.by_kind(session)
    except (SQLAlchemyError, OSError):
        return {}
    return {kind: num for kind, num in found.items() if num}


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
    found = {state for state in _reported(engines, "profile.state") if isinstance(state, str)}
    return "measuring" if "measuring" in found else min(found, default=None)


def _policy_errors(engines: EnginePool) -> int:
    """Steps at which a scheduling policy erred; the engine planned those with a plainer one."""
    return sum(num for num in _reported(engines, "policy_errors") if isinstance(num, int))


def _versions(engines: EnginePool) -> list[str]:
    """Of the software of engines that are up, each once; as far as they tell."""
    all_facts = [one.facts for one in engines.members if one.up and one.facts is not None]
    told = {facts.server_label if facts.foreign else facts.version for facts in all_facts}
    return sorted(told - {""})


def _reported(engines: EnginePool, path: str) -> Iterator[Any]:
    """What the runtimes of engines that are up report at a path."""
    for member in engines.members:
        if member.up and member.facts is not None:
            yield member.facts.reported(path)


def _part(why: str) -> dict[str, Any]:
    return {"ok": not why, "why": why or None}


async def _reason(probe: Awaitable[Any]) -> str:
    """Why a probe failed, empty if it did not; errors' own words may hold addresses and keys."""
    try:
        await probe
    except (SQLAlchemyError, RedisError, OSError) as error:
        logger.warning("a probe of /statusz failed: %s", type(error).__name__)
        return why_refused(error) if isinstance(error, RedisError) else why_away(error)
    return ""
