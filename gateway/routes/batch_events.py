"""`/batches/{batch_id}/events`: what happened to a batch, and who did it. Ours, not OpenAI's."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Query
from pydantic import BaseModel

from api.batch_errors import BatchNotFound
from api.batch_shapes import may_be_id
from api.errors import NotFound
from gateway.dependencies import DatabaseDep, PrincipalDep
from store.models import BatchEvent
from store.repositories import batch as batches
from store.repositories import event as events

router = APIRouter(tags=["batches"])

_PREFIX = "bevent_"
_OF_OPERATORS = " (dashboard)"
MAX_DIGITS = 18
"""What the database can count to, and no more."""


class BatchEventObject(BaseModel):
    """One thing that happened to a batch.

    Attributes:
        actor: Whose key did it and through which door; null where coserve did it by itself.
        detail: What goes with it, as how many rows.
    """

    id: str
    object: Literal["batch.event"] = "batch.event"
    created_at: int
    event: str
    from_status: str | None
    to_status: str | None
    actor: str | None
    detail: dict[str, Any] | None

    @classmethod
    def of(cls, event: BatchEvent, *, to_operators: bool) -> Self:
        """The wire shape of a row; the names of operators are for operators."""
        actor = event.actor
        if actor is not None and actor.endswith(_OF_OPERATORS) and not to_operators:
            actor = f"an operator{_OF_OPERATORS}"
        return cls(
            id=f"{_PREFIX}{event.id}",
            created_at=int(event.created_at.timestamp()),
            event=event.event,
            from_status=event.from_status,
            to_status=event.to_status,
            actor=actor,
            detail=event.detail,
        )


class BatchEventList(BaseModel):
    """A page of events; all five keys always."""

    object: Literal["list"] = "list"
    data: list[BatchEventObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


@router.get("/batches/{batch_id}/events")
async def list_batch_events(
    batch_id: str,
    principal: PrincipalDep,
    database: DatabaseDep,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 100,
) -> BatchEventList:
    """A page of what happened to a batch and who did it, oldest first."""
    if not may_be_id(batch_id):
        raise BatchNotFound(batch_id[:64])
    after_id = 0 if after is None else _number(after)
    async with database.snapshot() as session:
        if await batches.get(session, principal.project_id, batch_id) is None:
            raise BatchNotFound(batch_id[:64])
        found = await events.page(session, batch_id, after_id=after_id, limit=limit + 1)
    to_operators = principal.role is not None
    data = [BatchEventObject.of(one, to_operators=to_operators) for one in found[:limit]]
    return BatchEventList(
        data=data,
        first_id=data[0].id if data else None,
        last_id=data[-1].id if data else None,
        has_more=len(found) > limit,
    )


def _number(event_id: str) -> int:
    digits = event_id.removeprefix(_PREFIX)
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS
    if not event_id.startswith(_PREFIX) or not is_number:
        raise NotFound(f"No batch event found with id '{event_id[:64]}'.", param="after")
    return int(digits)
