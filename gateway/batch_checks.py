"""The one check of a batch's file: for `/batches/check`, and for the form of the dashboard."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, cast

from starlette.datastructures import State

from api.numbers import largest_sizes
from batch.intake.dry_run import DryRuns
from batch.intake.quote import Contents, quote
from engine_adapter.client.aliases import sizes_of_aliases, stands_for
from engine_adapter.client.base import EMBEDDINGS_PATH
from gateway.settings import GatewaySettings
from store.repositories import progress, statements, validation
from store.session import Database


async def dry_run(
    state: State, project_id: str, endpoint: str, content: AsyncGenerator[bytes]
) -> dict[str, Any]:
    """Every error that a batch of the project over this content would fail with.

    Args:
        state: The gateway's `app.state`.
        project_id: Whose models and whose turn.
        endpoint: What the lines must ask for.
        content: Of the file; read once its turn has come.

    Returns:
        `num_lines`, `num_bytes`, `model`, `faults` and `quote`, in wire shape.
    """
    settings = cast(GatewaySettings, state.settings)
    aliases = settings.aliases
    database = cast(Database, state.database)
    async with database.unit_of_work() as session:
        served_models = await validation.served_models(
            session, project_id, embeds=endpoint == EMBEDDINGS_PATH, aliases=aliases
        )
        sizes = largest_sizes(await validation.model_sizes(session))
    sizes |= sizes_of_aliases(aliases, sizes)
    dry_runs = cast(DryRuns, state.dry_runs)
    found = await dry_runs.check(project_id, content, endpoint, served_models, sizes)
    contents = found.pop("contents")
    found["quote"] = None
    if contents is not None:
        model = stands_for(found["model"], aliases, sizes)
        price = settings.price
        async with database.snapshot() as session:
            offer = quote(
                Contents(**contents),
                await progress.recent_service(session),
                now=await statements.now(session),
                mean_answer_tokens=await progress.mean_answer_tokens(
                    session, project_id, model, endpoint
                ),
                price_of=None if price is None else price.of,
            )
        found["quote"] = offer.model_dump()
    return found
