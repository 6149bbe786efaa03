"""`/batches`."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header, Query, Request

from api.batch_errors import BatchNotFound
from api.batch_shapes import BatchList, BatchObject, CreateBatch, may_be_id
from api.errors import ApiError, InvalidRequest, PayloadTooLarge
from api.json_input import read_object
from api.json_output import dump
from api.json_shape import check_shape
from batch.files import FileStore
from batch.finish import cancel
from batch.intake import idempotency, inline
from batch.intake.arrivals import Arrivals, StoredArrivals, discard
from batch.intake.create import check_endpoint
from batch.intake.upload import Upload
from batch.queue import STAGES
from batch.states import BatchStatus
from gateway.batch_shapes import shape, shape_new, shapes
from gateway.dependencies import (
    MAX_VALUES,
    ActorDep,
    DatabaseDep,
    EnginesDep,
    FileStoreDep,
    PrincipalDep,
    QueueDep,
    ReadingsDep,
    principal_of,
)
from gateway.http.body_limit import SMALL_BODY_BYTES
from gateway.http.json_route import JsonRoute
from gateway.http.streaming_list import ListResponse, dumped
from gateway.tenants.actor import Action
from store.repositories import batch as batches


class _CreationRequest(Request):
    """A creation may hold requests: it is long, and not read before its key is known."""

    async def body(self) -> bytes:
        await principal_of(self)
        return await super().body()

    async def json(self) -> Any:
        """The body; an error of it is met by `error_handlers`.

        Raises:
            InvalidRequest: It cannot be read, is no object, or has too many values beside its
                requests.
            PayloadTooLarge: It is long without its requests.
        """
        body = read_object(await self.body())
        others = dump({name: value for name, value in body.items() if name != "requests"})
        if len(others) > SMALL_BODY_BYTES:
            raise PayloadTooLarge(
                f"The body is larger than {SMALL_BODY_BYTES:,} bytes without its requests."
            )
        check_shape(others, max_strings=MAX_VALUES, max_values=MAX_VALUES)
        return body


class _CreationRoute(JsonRoute):
    request_class = _CreationRequest
    counts_values = True


router = APIRouter(tags=["batches"], route_class=_CreationRoute)


@router.post("/batches")
async def create_batch(  # noqa: PLR0913
    body: CreateBatch,
    principal: PrincipalDep,
    actor: ActorDep,
    database: DatabaseDep,
    file_store: FileStoreDep,
    engines: EnginesDep,
    queue: QueueDep,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> BatchObject:
    """Create a batch; its file is read later, by a worker."""
    key = idempotency.check_key(idempotency_key)
    arrivals = StoredArrivals(database)
    received = await _received(body, file_store, arrivals)
    try:
        async with database.unit_of_work(actor=actor.named) as session:
            batch, is_new = await idempotency.create_batch(
                session,
                principal.project_id,
                body.model_copy(update={"requests": None}),
                key_id=principal.key_id,
                key=key,
                received=received,
            )
            if is_new:
                await actor.record(
                    session,
                    Action.BATCH_CREATED,
                    batch.id,
                    project_id=batch.project_id,
                    detail={"data": {"input_file_id": batch.input_file_id}},
                )
    except ApiError:  # refused before the commit: without its row the file is lost space
        if received is not None:
            await discard(file_store, arrivals, received.file_id)
        raise
    if is_new:
        await queue.wake(STAGES)
    elif received is not None:
        await discard(file_store, arrivals, received.file_id)
    # After the commit: the project's next creation does not wait for what this one is told.
    async with database.snapshot() as session:
        return await (shape_new if is_new else shape)(session, engines, batch)


async def _received(body: CreateBatch, file_store: FileStore, arrivals: Arrivals) -> Upload | None:
    """The creation's own requests, stored as a file; none where it names a file.

    Raises:
        InvalidRequest: It has neither or both, or its requests are wrong; `param` names it.
    """
    if body.requests is None:
        if body.input_file_id is None:
            raise InvalidRequest(
                "Missing required parameter: 'input_file_id'.",
                param="input_file_id",
                code="missing_required_parameter",
            )
        return None
    if body.input_file_id is not None:
        raise InvalidRequest("Send 'input_file_id' or 'requests', not both.", param="requests")
    check_endpoint(body.endpoint)
    return await inline.store(body.requests, body.endpoint, file_store, arrivals)


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
