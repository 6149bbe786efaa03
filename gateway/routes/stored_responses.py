"""`/responses/{response_id}`: what was stored of a response."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from api.batch_shapes import may_be_id
from api.errors import NotFound
from api.json_output import dump
from api.responses.items import unpacked
from batch.background import cancel, stop
from batch.queue import STAGES
from gateway.dependencies import DatabaseDep, PrincipalDep, QueueDep
from gateway.http.parsing import BRIEF_BYTES, let_go
from gateway.http.query import Included
from gateway.prompts.forms import JSON
from gateway.prompts.serving import parts_of
from gateway.responses import background
from gateway.responses.lists import page_of
from store.models import StoredResponse
from store.repositories import response as responses
from store.session import Database

router = APIRouter(tags=["responses"])


@router.get("/responses/{response_id}", response_class=Response)
async def get_response(
    request: Request,
    response_id: str,
    principal: PrincipalDep,
    database: DatabaseDep,
    stream: bool = False,
    starting_after: Annotated[int | None, Query(ge=0)] = None,
    include: Included = None,
) -> Response:
    """A stored response, or its events from a number on; those still to come too."""
    seen = None
    if may_be_id(response_id):
        async with database.unit_of_work() as session:
            seen = await background.read_seen(session, principal.project_id, response_id)
    if seen is None:
        raise _not_found(response_id)
    if not stream:
        return Response(seen.body, media_type=JSON)
    request.app.state.followers.check(principal.project_id)
    first = 0 if starting_after is None else starting_after + 1
    return background.followed(request, principal, response_id, first=first)


@router.delete("/responses/{response_id}")
async def delete_response(
    response_id: str, principal: PrincipalDep, database: DatabaseDep, queue: QueueDep
) -> dict[str, Any]:
    """Delete a response for good; those that go on from it cannot be gone on from any more."""
    removed, batch_id = False, None
    if may_be_id(response_id):
        async with database.unit_of_work() as session:
            if await responses.get(session, principal.project_id, response_id) is not None:
                batch_id = await stop(session, principal.project_id, response_id)
            removed = await responses.remove(session, principal.project_id, response_id)
    if not removed:
        raise _not_found(response_id)
    if batch_id is not None:
        await queue.wake(STAGES)
    return {"id": response_id, "object": "response", "deleted": True}


@router.post("/responses/{response_id}/cancel", response_class=Response)
async def cancel_response(
    response_id: str, principal: PrincipalDep, database: DatabaseDep, queue: QueueDep
) -> Response:
    """Cancel a response that is made in the background; one that was cancelled stays so."""
    batch_id = None
    async with database.unit_of_work() as session:
        stored = None
        if may_be_id(response_id):
            stored = await responses.get(session, principal.project_id, response_id)
        if stored is None:
            raise _not_found(response_id)
        batch_id = await cancel(session, stored)
        body = stored.body
    if batch_id is not None:
        await queue.wake(STAGES)
    return Response(body, media_type=JSON)


@router.get("/responses/{response_id}/input_items", response_model=dict[str, Any])
async def list_input_items(  # noqa: PLR0913 - the query has as many
    request: Request,
    response_id: str,
    principal: PrincipalDep,
    database: DatabaseDep,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Literal["asc", "desc"] = "desc",
    include: Included = None,
) -> Response:
    """A page of the items that were this response's own input."""
    stored = await _find(database, principal.project_id, response_id)

    def page() -> bytes:
        items = unpacked(stored.input_items)
        try:
            return dump(page_of(items, after=after, limit=limit, oldest_first=order == "asc"))
        finally:
            let_go(items)

    is_large = len(stored.input_items) > BRIEF_BYTES
    body = await parts_of(request).parsing.run(principal.project_id, page, is_large=is_large)
    return Response(body, media_type=JSON)


async def _find(database: Database, project_id: str, response_id: str) -> StoredResponse:
    stored = None
    if may_be_id(response_id):
        async with database.unit_of_work() as session:
            stored = await responses.get(session, project_id, response_id)
    if stored is None:
        raise _not_found(response_id)
    return stored


def _not_found(response_id: str) -> NotFound:
    return NotFound(f"Response with id '{response_id[:64]}' not found.", param="response_id")
