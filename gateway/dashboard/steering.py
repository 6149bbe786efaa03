"""What an admin can do with a batch that is there: cancel, pause, resume, prefer, run again."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from batch import rerun, steer
from batch.cancel import cancel
from engine_adapter.wire.errors import Conflict, NotFound
from gateway.dashboard.access import Admin, AdminDep, CheckedForm, ResourcesDep
from gateway.dashboard.navigation import go_to_batch
from store.models import Batch
from store.repositories import overview

router = APIRouter(prefix="/batches/{batch_id}", dependencies=[CheckedForm])

# A batch that ended meanwhile is no error: its page says how, and that is the answer.


@router.post("/cancel")
async def cancel_batch(
    request: Request, resources: ResourcesDep, admin: AdminDep, batch_id: str
) -> Response:
    """Cancel a batch of any project."""
    try:
        async with resources.database.unit_of_work() as work:
            batch = await _find(work, admin, batch_id)
            await cancel(work, batch.project_id, batch.id)
    except Conflict:
        pass
    else:
        await resources.queue.enqueue_finalize(batch_id)
    return go_to_batch(request, batch_id[:64])


@router.post("/pause")
async def pause_batch(
    request: Request, resources: ResourcesDep, admin: AdminDep, batch_id: str
) -> Response:
    """Start no more rows of a batch of any project."""
    try:
        async with resources.database.unit_of_work() as work:
            batch = await _find(work, admin, batch_id)
            await steer.pause(work, batch.project_id, batch.id)
    except Conflict:
        pass
    return go_to_batch(request, batch_id[:64])


@router.post("/resume")
async def resume_batch(
    request: Request, resources: ResourcesDep, admin: AdminDep, batch_id: str
) -> Response:
    """Let a paused batch of any project go on."""
    try:
        async with resources.database.unit_of_work() as work:
            batch = await _find(work, admin, batch_id)
            await steer.resume(work, batch.project_id, batch.id)
    except Conflict:
        pass
    else:
        await resources.queue.wake_dispatchers(resources.engine_pool.open_urls)
    return go_to_batch(request, batch_id[:64])


@router.post("/priority")
async def change_priority(
    request: Request,
    resources: ResourcesDep,
    admin: AdminDep,
    batch_id: str,
    priority: Annotated[int, Form()],
) -> Response:
    """Change a live batch's place among those of its project."""
    try:
        async with resources.database.unit_of_work() as work:
            batch = await _find(work, admin, batch_id)
            await steer.prioritize(work, batch.project_id, batch.id, priority)
    except Conflict:
        pass
    return go_to_batch(request, batch_id[:64])


@router.post("/retry")
async def retry_batch(
    request: Request, resources: ResourcesDep, admin: AdminDep, batch_id: str
) -> Response:
    """Run the unanswered lines of a batch that is over again; leads to the new batch.

    It belongs to the project and the key of the one it repeats, not to the admin's.
    """
    async with resources.database.unit_of_work() as work:
        batch = await _find(work, admin, batch_id)
        retry = await rerun.retry_failed(work, batch.project_id, batch.id, key_id=batch.key_id)
    await resources.queue.wake_dispatchers(resources.engine_pool.open_urls)
    return go_to_batch(request, retry.id)


async def _find(work: AsyncSession, admin: Admin, batch_id: str) -> Batch:
    found = await overview.one(work, admin.organization_id, batch_id[:64])
    if found is None:
        raise NotFound(f"No batch found with id '{batch_id[:64]}'.")
    return found.batch
