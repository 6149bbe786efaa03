"""`/batches` (contract sections 7 and 8)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query

from batch import cancel, idempotency
from batch.errors import BatchNotFound
from batch.schemas import BatchList, BatchObject, CreateBatch, may_be_id
from gateway.batch_shapes import shape, shapes
from gateway.dependencies import DatabaseDep, EnginesDep, PrincipalDep, QueueDep
from store.repositories import batch as batches

router = APIRouter(tags=["batches"])


@router.post("/batches")
async def create_batch(
    body: CreateBatch,
    principal: PrincipalDep,
    database: DatabaseDep,
    engines: EnginesDep,
    queue: QueueDep,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> BatchObject:
    """Create a batch; its file is read later, by a worker."""
    async with database.unit_of_work() as session:
        batch, is_new = await idempotency.create_batch(
            session,
            principal.project_id,
            body,
            key_id=principal.key_id,
            key=idempotency.check_key(idempotency_key),
        )
        answer = await shape(session, engines, batch)
    if is_new:
        await queue.enqueue_validate(batch.id)
    return answer


@router.get("/batches")
async def list_batches(
    principal: PrincipalDep,
    database: DatabaseDep,
    engines: EnginesDep,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> BatchList:
    """A page of the project's batches, newest first."""
    async with database.snapshot() as session:
        last = None
        if after is not None:
            if may_be_id(after):
                last = await batches.get(session, principal.project_id, after)
            if last is None:
                raise BatchNotFound(after[:64], param="after")
        found = await batches.page(session, principal.project_id, after=last, limit=limit + 1)
        page = await shapes(session, engines, found[:limit])
        return BatchList.of(page, has_more=len(found) > limit)


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
    database: DatabaseDep,
    engines: EnginesDep,
    queue: QueueDep,
) -> BatchObject:
    """Stop a live batch; what is finished is kept and delivered."""
    if not may_be_id(batch_id):
        raise BatchNotFound(batch_id[:64])
    async with database.unit_of_work() as session:
        batch = await cancel.cancel(session, principal.project_id, batch_id)
        answer = await shape(session, engines, batch)
    await queue.enqueue_finalize(batch_id)
    return answer
