"""A dry run: `/batches/check`. Ours, not OpenAI's."""

from __future__ import annotations

from fastapi import APIRouter, Request

from api.batch_shapes import BatchCheck, BatchFault, BatchFaults, CheckBatch
from batch.intake.create import check_endpoint, find_input
from gateway.batch_checks import dry_run
from gateway.dependencies import DatabaseDep, FileStoreDep, PrincipalDep
from gateway.http.json_route import JsonRoute

router = APIRouter(tags=["batches"], route_class=JsonRoute)


@router.post("/batches/check")
async def check_batch(
    body: CheckBatch,
    request: Request,
    principal: PrincipalDep,
    database: DatabaseDep,
    file_store: FileStoreDep,
) -> BatchCheck:
    """Every error that a batch over this file would fail with; nothing is created."""
    check_endpoint(body.endpoint)
    async with database.unit_of_work() as session:
        file = await find_input(session, principal.project_id, body.input_file_id)
    found = await dry_run(
        request.app.state,
        principal.project_id,
        body.endpoint,
        file_store.stream(file.storage_key),
    )
    faults = [BatchFault(**fault) for fault in found["faults"]]
    return BatchCheck(
        input_file_id=file.id,
        endpoint=body.endpoint,
        valid=not faults,
        num_lines=found["num_lines"],
        num_bytes=found["num_bytes"],
        model=found["model"],
        errors=BatchFaults(data=faults) if faults else None,
        quote=found["quote"],
    )
