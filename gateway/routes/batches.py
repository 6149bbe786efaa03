"""`/batches`."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import APIRouter, Header, Query

from api.batch_errors import BatchNotFound
from api.batch_shapes import BatchList, BatchObject, CreateBatch, may_be_id
from api.json_output import dump
from batch.finish import cancel
from batch.intake import idempotency
from batch.queue import STAGES
from batch.states import BatchStatus
from gateway.batch_shapes import shape, shape_new, shapes
from gateway.dependencies import (
    ActorDep,
    DatabaseDep,
    EnginesDep,
    PrincipalDep,
    QueueDep,
    ReadingsDep,
)
from gateway.http.json_route import JsonRoute
from gateway.http.streaming_list import ListResponse, dumped
from gateway.tenants.actor import Action
from store.repositories import batch as batches

router = APIRouter(tags=["batches"], route_class=JsonRoute)


@router.post("/batches")
async def create_batch(
    body: CreateBatch,
    principal: PrincipalDep,
    actor: ActorDep,
    database: DatabaseDep,
    engines: EnginesDep,
    queue: QueueDep,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> BatchObject:
    """Create a batch; its file is read later, by a worker."""
    async with database.unit_of_work(actor=actor.named) as session:
        batch, is_new = await idempotency.create_batch(
            session,
            principal.project_id,
            body,
            key_id=principal.key_id,
            key=idempotency.check_key(idempotency_key),
        )
        if is_new:
            await actor.record(
                session,
                Action.BATCH_CREATED,
                batch.id,
                project_id=batch.project_id,
                detail={"data": {"input_file_id": batch.input_file_id}},
            )
    if is_new:
        await queue.wake(STAGES)
    # After the commit: the project's next creation does not wait for what this one is told.
    async with database.snapshot() as session:
        return await (shape_new if is_new else shape)(session, engines, batch)


@router.get("/batches", response_model=BatchList)
async def list_batches(
    principal: PrincipalDep,
    readings: ReadingsDep,
    engines: EnginesDep,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> ListResponse:
    """A page of the project's batches, newest first."""
    async with readings.snapshot() as session:
        last = None
        if after is not None:
            if may_be_id(after):
                last = await batches.get(session, principal.project_id, after)
            if last is None:
                raise BatchNotFound(after[:64], param="after")
        found = await batches.page(session, principal.project_id, after=last, limit=limit + 1)
        made: list[bytes] = []
        for one in await shapes(session, engines, found[:limit], errors_apart=True):
            told = one.model_dump()
            if one.status == BatchStatus.FAILED:
                # Errors may be long and are JSON already: one batch's at a time, never parsed.
                errors = await batches.errors_json(session, principal.project_id, one.id)
                told["errors"] = errors and {"object": "list", "data": orjson.Fragment(errors)}
            made += await dumped([told], dump)
    ids = (found[0].id, found[:limit][-1].id) if found else None
    return ListResponse(made, ids, has_more=len(found) > limit)


@router.get("/batches/{batch_id}")
async def get_batch(
    batch_id: str,
    principal: PrincipalDep,
    database: DatabaseDep,
    engines: EnginesDep,
) -> BatchObject:
    """One batch as it is now."""
    if not may_be_id(batch_id):
        raise BatchNotFound(batch_id[:64])
    async with database.snapshot() as session:
        batch = await batches.get(session, principal.project_id, batch_id)
        if batch is None:
            raise BatchNotFound(batch_id[:64])
        return await shape(session, engines, batch)


@router.post("/batches/{batch_id}/cancel")
async def cancel_batch(
    batch_id: str,
    principal: PrincipalDep,
    actor: ActorDep,
    database: DatabaseDep,
    engines: EnginesDep,
    queue: QueueDep,
) -> BatchObject:
    """Stop a live batch; what is finished is kept and delivered."""
    if not may_be_id(batch_id):
        raise BatchNotFound(batch_id[:64])
    async with database.unit_of_work(actor=actor.named) as session:
        batch = await cancel.cancel(session, principal.project_id, batch_id)
        await actor.record(session, Action.BATCH_CANCELLED, batch.id, project_id=batch.project_id)
        answer = await shape(session, engines, batch)
    await queue.wake(STAGES)
    return answer
