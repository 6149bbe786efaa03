"""`/conversations`: items that several responses share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from api import rules
from api.batch_shapes import may_be_id, unix_s
from api.errors import InvalidRequest, NotFound
from api.objects import only
from api.responses.items import Item, check_item, is_reference, listed, packed
from batch.intake.project_limits import check_storage
from engine_adapter.client.rid import new_rid
from gateway.dependencies import DatabaseDep, PrincipalDep
from gateway.http.query import Included
from gateway.http.streaming_list import ListResponse
from gateway.prompts.body import json_body
from gateway.prompts.forms import JSON
from gateway.prompts.serving import parts_of
from gateway.responses.lists import no_item_after, page_of
from gateway.routes.openapi import json_request
from gateway.routes.shapes import CONVERSATION_ITEMS_REQUEST, CONVERSATION_REQUEST
from store.models import Conversation
from store.repositories import conversation as conversations
from store.types import new_id

router = APIRouter(tags=["conversations"])

MAX_ITEMS_AT_ONCE = 20


@router.post("/conversations", openapi_extra=json_request(CONVERSATION_REQUEST))
async def create_conversation(
    request: Request, principal: PrincipalDep, database: DatabaseDep
) -> dict[str, Any]:
    """Begin a conversation, perhaps with items."""
    body = await json_body(request) if await request.body() else {}
    only("", body, "conversation of items")
    items = packed(_items(body, required=False))
    lifetime = _lifetime(request)
    async with database.unit_of_work() as session:
        await check_storage(session, principal.project_id, _num_bytes(items))
        made = await conversations.add(
            session, principal.project_id, new_id("conv_"), _metadata(body) or {}, lifetime
        )
        await conversations.append(session, made, items, lifetime)
        return _wire(made)


@router.get("/conversations/{conversation_id}")
async def get_conversation(
    conversation_id: str, principal: PrincipalDep, database: DatabaseDep
) -> dict[str, Any]:
    """One conversation."""
    async with database.unit_of_work() as session:
        return _wire(await _find(session, principal.project_id, conversation_id))


@router.post("/conversations/{conversation_id}", openapi_extra=json_request(CONVERSATION_REQUEST))
async def update_conversation(
    conversation_id: str, request: Request, principal: PrincipalDep, database: DatabaseDep
) -> dict[str, Any]:
    """Replace its metadata."""
    body = await json_body(request)
    only("", body, "conversation's metadata")
    metadata = _metadata(body)
    async with database.unit_of_work() as session:
        found = await _find(session, principal.project_id, conversation_id, lock=True)
        found.conversation_metadata = metadata or {}
        return _wire(found)


@router.delete("/conversations/{conversation_id}")
async def delete_conversation(
    conversation_id: str, principal: PrincipalDep, database: DatabaseDep
) -> dict[str, Any]:
    """Delete a conversation and its items; responses stay."""
    async with database.unit_of_work() as session:
        await _find(session, principal.project_id, conversation_id, lock=True)
        await conversations.remove(session, principal.project_id, conversation_id)
    return {"id": conversation_id, "object": "conversation.deleted", "deleted": True}


@router.post(
    "/conversations/{conversation_id}/items",
    openapi_extra=json_request(CONVERSATION_ITEMS_REQUEST),
)
async def create_conversation_items(
    conversation_id: str,
    request: Request,
    principal: PrincipalDep,
    database: DatabaseDep,
    include: Included = None,
) -> dict[str, Any]:
    """Add items at its end."""
    body = await json_body(request)
    only("", body, "items")
    items = _items(body, required=True)
    kept = packed(items)
    async with database.unit_of_work() as session:
        await check_storage(session, principal.project_id, _num_bytes(kept))
        found = await _find(session, principal.project_id, conversation_id, lock=True)
        await conversations.append(session, found, kept, _lifetime(request))
    return page_of(items, after=None, limit=MAX_ITEMS_AT_ONCE, oldest_first=True)


@router.get("/conversations/{conversation_id}/items", response_model=dict[str, Any])
async def list_conversation_items(
    conversation_id: str,
    principal: PrincipalDep,
    database: DatabaseDep,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Literal["asc", "desc"] = "desc",
    include: Included = None,
) -> ListResponse:
    """A page of its items; shorter than `limit` where they are long."""
    oldest_first = order == "asc"
    async with database.snapshot() as session:
        found = await _find(session, principal.project_id, conversation_id)
        place = None
        if after is not None:
            if "\0" not in after:
                place = await conversations.place_of(
                    session, found, after, oldest_first=oldest_first
                )
            if place is None:
                raise no_item_after(after)
        items, has_more = await conversations.page(
            session, found, limit=limit, after=place, oldest_first=oldest_first
        )
    ids = (items[0][0], items[-1][0]) if items else None
    return ListResponse([item for _, item in items], ids, has_more=has_more)


@router.get("/conversations/{conversation_id}/items/{item_id}", response_model=dict[str, Any])
async def get_conversation_item(
    conversation_id: str,
    item_id: str,
    principal: PrincipalDep,
    database: DatabaseDep,
    include: Included = None,
) -> Response:
    """One item."""
    async with database.snapshot() as session:
        found = await _find(session, principal.project_id, conversation_id)
        item = None if "\0" in item_id else await conversations.item(session, found, item_id)
    if item is None:
        raise _item_not_found(item_id)
    return Response(item, media_type=JSON)


@router.delete("/conversations/{conversation_id}/items/{item_id}")
async def delete_conversation_item(
    conversation_id: str, item_id: str, principal: PrincipalDep, database: DatabaseDep
) -> dict[str, Any]:
    """Delete one item; answers with the conversation."""
    if "\0" in item_id:
        raise _item_not_found(item_id)
    async with database.unit_of_work() as session:
        found = await _find(session, principal.project_id, conversation_id, lock=True)
        if not await conversations.remove_items(session, found, [item_id]):
            raise _item_not_found(item_id)
        return _wire(found)


async def _find(
    session: AsyncSession, project_id: str, conversation_id: str, *, lock: bool = False
) -> Conversation:
    found = None
    if may_be_id(conversation_id):
        found = await conversations.get(session, project_id, conversation_id, lock=lock)
    if found is None:
        raise NotFound(
            f"Conversation with id '{conversation_id[:64]}' not found.", param="conversation_id"
        )
    return found


def _num_bytes(items: Sequence[tuple[str, bytes]]) -> int:
    return sum(len(item) for _, item in items)


def _lifetime(request: Request) -> timedelta:
    return timedelta(days=parts_of(request).settings.response_days)


def _items(body: dict[str, Any], *, required: bool) -> list[Item]:
    """The items of a body, whole."""
    given = rules.required(body, "items") if required else body.get("items")
    if given is None:
        return []
    check = rules.array_of(check_item, min_items=int(required), max_items=MAX_ITEMS_AT_ONCE)
    check("items", given)
    if any(map(is_reference, given)):
        raise InvalidRequest("A conversation holds items, not references to them.", param="items")
    return listed(given, new_rid())


def _metadata(body: dict[str, Any]) -> dict[str, str] | None:
    given: dict[str, str] | None = body.get("metadata")
    if given is not None:
        rules.metadata("metadata", given)
        if any("\0" in text for pair in given.items() for text in pair):
            raise rules.wrong("metadata", "must hold no NUL")
    return given


def _wire(conversation: Conversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": unix_s(conversation.created_at),
        "metadata": conversation.conversation_metadata,
    }


def _item_not_found(item_id: str) -> NotFound:
    return NotFound(f"Item with id '{item_id[:64]}' not found.", param="item_id")
