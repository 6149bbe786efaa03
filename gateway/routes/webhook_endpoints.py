"""`/webhook_endpoints` and `/webhook_event_types`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.batch_errors import WebhookEndpointNotFound
from api.batch_shapes import may_be_id
from batch.webhooks import endpoints
from batch.webhooks.schemas import (
    CreateWebhookEndpoint,
    RotateSecret,
    TestWebhookEndpoint,
    UpdateWebhookEndpoint,
    WebhookEndpointDeleted,
    WebhookEndpointList,
    WebhookEndpointObject,
    WebhookEndpointTested,
    WebhookEndpointWithSecret,
    WebhookEventTypes,
)
from gateway.dependencies import (
    ActorDep,
    ClockDep,
    DatabaseDep,
    PrincipalDep,
    SenderDep,
    WebhookProbeLimitDep,
)
from gateway.http.json_route import JsonRoute
from gateway.tenants.actor import Action
from store.repositories import webhook_endpoint

router = APIRouter(tags=["webhooks"], route_class=JsonRoute)


@router.get("/webhook_event_types")
async def list_event_types(principal: PrincipalDep) -> WebhookEventTypes:
    """What an endpoint may ask for."""
    del principal  # only that there is one
    return WebhookEventTypes()


@router.post("/webhook_endpoints")
async def create_endpoint(
    body: CreateWebhookEndpoint,
    principal: PrincipalDep,
    actor: ActorDep,
    database: DatabaseDep,
    sender: SenderDep,
    probes: WebhookProbeLimitDep,
) -> WebhookEndpointWithSecret:
    """A new endpoint; its secret is shown here and never again."""
    async with probes.probing(principal.project_id):
        note = actor.noting(Action.WEBHOOK_CREATED)
        made = await endpoints.create(database, sender, principal.project_id, body, note=note)
    return WebhookEndpointWithSecret.of(made)


@router.get("/webhook_endpoints")
async def list_endpoints(
    principal: PrincipalDep,
    database: DatabaseDep,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> WebhookEndpointList:
    """A page of the project's endpoints, newest first."""
    async with database.unit_of_work() as session:
        last = None
        if after is not None:
            if may_be_id(after):
                last = await webhook_endpoint.get(session, principal.project_id, after)
            if last is None:
                raise WebhookEndpointNotFound(after[:64], param="after")
        found = await webhook_endpoint.page(
            session, principal.project_id, after=last, limit=limit + 1
        )
    return WebhookEndpointList.of(found[:limit], has_more=len(found) > limit)


@router.get("/webhook_endpoints/{webhook_endpoint_id}")
async def get_endpoint(
    webhook_endpoint_id: str, principal: PrincipalDep, database: DatabaseDep
) -> WebhookEndpointObject:
    """One endpoint."""
    async with database.unit_of_work() as session:
        found = await endpoints.find(session, principal.project_id, webhook_endpoint_id)
    return WebhookEndpointObject.of(found)


@router.post("/webhook_endpoints/{webhook_endpoint_id}")
async def update_endpoint(
    webhook_endpoint_id: str,
    body: UpdateWebhookEndpoint,
    principal: PrincipalDep,
    actor: ActorDep,
    database: DatabaseDep,
    sender: SenderDep,
    probes: WebhookProbeLimitDep,
) -> WebhookEndpointObject:
    """Change what is given."""
    async with probes.probing(principal.project_id):
        changed = await endpoints.update(
            database,
            sender,
            principal.project_id,
            webhook_endpoint_id,
            body,
            note=actor.noting(Action.WEBHOOK_UPDATED),
        )
    return WebhookEndpointObject.of(changed)


@router.delete("/webhook_endpoints/{webhook_endpoint_id}")
async def delete_endpoint(
    webhook_endpoint_id: str, principal: PrincipalDep, actor: ActorDep, database: DatabaseDep
) -> WebhookEndpointDeleted:
    """Remove it, with what was on its way there."""
    async with database.unit_of_work() as session:
        await endpoints.delete(session, principal.project_id, webhook_endpoint_id)
        await actor.record(
            session,
            Action.WEBHOOK_DELETED,
            webhook_endpoint_id,
            project_id=principal.project_id,
        )
    return WebhookEndpointDeleted(id=webhook_endpoint_id)


@router.post("/webhook_endpoints/{webhook_endpoint_id}/rotate_secret")
async def rotate_secret(
    webhook_endpoint_id: str,
    principal: PrincipalDep,
    actor: ActorDep,
    database: DatabaseDep,
    body: RotateSecret | None = None,
) -> WebhookEndpointWithSecret:
    """A new secret, shown here and never again."""
    keep_old = body is not None and body.keep_old_secret_active_for_24_hours
    async with database.unit_of_work() as session:
        rotated = await endpoints.rotate_secret(
            session, principal.project_id, webhook_endpoint_id, keep_old=keep_old
        )
        await actor.noting(Action.WEBHOOK_ROTATED)(session, rotated)
    return WebhookEndpointWithSecret.of(rotated)


@router.post("/webhook_endpoints/{webhook_endpoint_id}/test")
async def test_endpoint(  # noqa: PLR0913
    webhook_endpoint_id: str,
    body: TestWebhookEndpoint,
    principal: PrincipalDep,
    actor: ActorDep,
    database: DatabaseDep,
    sender: SenderDep,
    probes: WebhookProbeLimitDep,
    clock: ClockDep,
) -> WebhookEndpointTested:
    """Send a sample event now; what the receiver answers is the result, whatever it is."""
    async with database.unit_of_work() as session:
        found = await endpoints.find(session, principal.project_id, webhook_endpoint_id)
        await actor.noting(Action.WEBHOOK_TESTED)(session, found)
    async with probes.probing(principal.project_id):
        status = await endpoints.test(
            database,
            sender,
            clock,
            principal.project_id,
            webhook_endpoint_id,
            body.event_type,
        )
    return WebhookEndpointTested(
        webhook_endpoint_id=webhook_endpoint_id, event_type=body.event_type, status_code=status
    )
