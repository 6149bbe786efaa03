"""Steering a batch: `/batches/{batch_id}/pause|resume|priority|retry`. Ours, not OpenAI's."""

from __future__ import annotations

from fastapi import APIRouter

from api.batch_errors import BatchNotFound
from api.batch_shapes import BatchObject, ChangePriority, may_be_id
from batch import rerun, steer
from batch.queue import DISPATCH, STAGES
from gateway.batch_shapes import shape
from gateway.dependencies import (
    ActorDep,
    DatabaseDep,
    EnginesDep,
    PrincipalDep,
    QueueDep,
    SettingsDep,
)
from gateway.http.json_route import JsonRoute
from gateway.tenants.actor import Action

router = APIRouter(tags=["batches"], route_class=JsonRoute)


@router.post("/batches/{batch_id}/pause")
async def pause_batch(
    batch_id: str,
    principal: PrincipalDep,
    actor: ActorDep,
    database: DatabaseDep,
    engines: EnginesDep,
) -> BatchObject:
    """Run no line of a live batch for now; its window goes on."""
    _check_id(batch_id)
    async with database.unit_of_work(actor=actor.named) as session:
        batch = await steer.pause(session, principal.project_id, batch_id)
        await actor.record(session, Action.BATCH_PAUSED, batch.id, project_id=batch.project_id)
        return await shape(session, engines, batch)


@router.post("/batches/{batch_id}/resume")
async def resume_batch(
    batch_id: str,
    principal: PrincipalDep,
    actor: ActorDep,
    database: DatabaseDep,
    engines: EnginesDep,
    queue: QueueDep,
) -> BatchObject:
    """Let a paused batch go on."""
    _check_id(batch_id)
    async with database.unit_of_work(actor=actor.named) as session:
        batch = await steer.resume(session, principal.project_id, batch_id)
        await actor.record(session, Action.BATCH_RESUMED, batch.id, project_id=batch.project_id)
        answer = await shape(session, engines, batch)
    await queue.wake(DISPATCH)
    await queue.wake(STAGES)
    return answer


@router.post("/batches/{batch_id}/priority")
async def change_priority(
    batch_id: str,
    body: ChangePriority,
    principal: PrincipalDep,
    actor: ActorDep,
    database: DatabaseDep,
    engines: EnginesDep,
) -> BatchObject:
    """Change a live batch's place among those of its project."""
    _check_id(batch_id)
    async with database.unit_of_work(actor=actor.named) as session:
        batch = await steer.prioritize(session, principal.project_id, batch_id, body.priority)
        await actor.record(
            session,
            Action.BATCH_UPDATED,
            batch.id,
            project_id=batch.project_id,
            detail={"changes_requested": {"priority": body.priority}},
        )
        return await shape(session, engines, batch)


@router.post("/batches/{batch_id}/retry")
async def retry_batch(
    batch_id: str,
    principal: PrincipalDep,
    actor: ActorDep,
    database: DatabaseDep,
    engines: EnginesDep,
    queue: QueueDep,
    settings: SettingsDep,
) -> BatchObject:
    """Run the unanswered rows of a batch that is over again, as a batch of their own."""
    _check_id(batch_id)
    async with database.unit_of_work(actor=actor.named) as session:
        batch = await rerun.retry_failed(
            session,
            principal.project_id,
            batch_id,
            key_id=principal.key_id,
            enqueued_token_limit=settings.batch_enqueued_tokens,
        )
        await actor.record(
            session,
            Action.BATCH_RETRIED,
            batch_id,
            project_id=batch.project_id,
            detail={"data": {"new_batch_id": batch.id}},
        )
        answer = await shape(session, engines, batch)
    await queue.wake(DISPATCH)
    return answer


def _check_id(batch_id: str) -> None:
    if not may_be_id(batch_id):
        raise BatchNotFound(batch_id[:64])
