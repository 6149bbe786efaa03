"""A dry run: `/batches/check`. Ours, not OpenAI's."""

from __future__ import annotations

from typing import cast

from fastapi import APIRouter, Request

from api.batch_shapes import BatchCheck, BatchFault, BatchFaults, CheckBatch
from api.numbers import largest_sizes
from batch.intake.create import check_endpoint, find_input
from batch.intake.dry_run import DryRuns
from engine_adapter.client.aliases import sizes_of_aliases
from engine_adapter.client.base import EMBEDDINGS_PATH
from gateway.dependencies import DatabaseDep, FileStoreDep, PrincipalDep
from gateway.settings import GatewaySettings
from store.repositories import validation

router = APIRouter(tags=["batches"])


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
        embeds = body.endpoint == EMBEDDINGS_PATH
        aliases = cast(GatewaySettings, request.app.state.settings).aliases
        served_models = await validation.served_models(
            session, principal.project_id, embeds=embeds, aliases=aliases
        )
        sizes = largest_sizes(await validation.model_sizes(session))
        sizes |= sizes_of_aliases(aliases, sizes)
    dry_runs = cast(DryRuns, request.app.state.dry_runs)
    found = await dry_runs.check(
        principal.project_id, file_store, file.storage_key, body.endpoint, served_models, sizes
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
    )
