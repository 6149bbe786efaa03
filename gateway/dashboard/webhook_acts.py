"""What an operator can do with webhooks: every act on an endpoint; a delivery sent again."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from api.batch_errors import WebhookEndpointNotFound
from api.errors import ApiError, Conflict
from batch.queue import DELIVER
from batch.webhooks import endpoints, signature
from batch.webhooks.schemas import (
    CreateWebhookEndpoint,
    EndpointOptions,
    UpdateWebhookEndpoint,
)
from gateway.dashboard.access import Admin, CheckedForm, OperatorDep, ResourcesDep, SentOnce
from gateway.dashboard.pages import webhooks_page
from gateway.dashboard.resources import Resources
from gateway.tenants.actor import Action
from store.models import WebhookEndpoint
from store.repositories import webhook_overview as overview

router = APIRouter(prefix="/webhooks", dependencies=[CheckedForm])

SAMPLE = "batch.completed"
"""What is sent to try an endpoint that hears of it; else the first event that it hears of."""


@router.post("", dependencies=[SentOnce])
async def create_endpoint(
    request: Request,
    resources: ResourcesDep,
    admin: OperatorDep,
    name: Annotated[str, Form()] = "",
    url: Annotated[str, Form()] = "",
    event_types: Annotated[list[str], Form()] = [],  # noqa: B006 - FastAPI copies it
) -> Response:
    """Register an endpoint of the operator's project; its secret is shown in the reply alone."""
    project_id = admin.key.project_id
    wanted = CreateWebhookEndpoint(name=name.strip(), url=url.strip(), event_types=event_types)
    try:
        async with resources.webhook_probes.probing(project_id):
            made = await endpoints.create(
                resources.database,
                resources.sender,
                project_id,
                wanted,
                note=admin.actor(request).noting(Action.WEBHOOK_CREATED),
            )
    except ApiError as refused:
        return await webhooks_page(request, resources, admin, refused=refused)
    return await webhooks_page(request, resources, admin, secret=signature.shown(made.secret))


async def _update(
    request: Request,
    resources: Resources,
    admin: Admin,
    endpoint_id: str,
    wanted: UpdateWebhookEndpoint,
) -> Response:
    found = await _found(resources, admin, endpoint_id)
    try:
        async with resources.webhook_probes.probing(found.project_id):
            await endpoints.update(
                resources.database,
                resources.sender,
                found.project_id,
                found.id,
                wanted,
                note=admin.actor(request).noting(Action.WEBHOOK_UPDATED),
            )
    except ApiError as refused:
        return await webhooks_page(request, resources, admin, refused=refused)
    return _to_webhooks(request)


@router.post("/{endpoint_id}")
async def edit_endpoint(
    request: Request,
    resources: ResourcesDep,
    admin: OperatorDep,
    endpoint_id: str,
    name: Annotated[str, Form()] = "",
    url: Annotated[str, Form()] = "",
    event_types: Annotated[list[str], Form()] = [],  # noqa: B006 - FastAPI copies it
) -> Response:
    """Change name, URL and events; an empty URL leaves it as it is."""
    wanted = UpdateWebhookEndpoint(
        name=name.strip(), url=url.strip() or None, event_types=event_types
    )
    return await _update(request, resources, admin, endpoint_id, wanted)


@router.post("/{endpoint_id}/disable")
async def disable_endpoint(
    request: Request, resources: ResourcesDep, admin: OperatorDep, endpoint_id: str
) -> Response:
    """Send nothing there until it is enabled again."""
    wanted = UpdateWebhookEndpoint(coserve=EndpointOptions(disabled=True))
    return await _update(request, resources, admin, endpoint_id, wanted)


@router.post("/{endpoint_id}/enable")
async def enable_endpoint(
    request: Request, resources: ResourcesDep, admin: OperatorDep, endpoint_id: str
) -> Response:
    """Enable an endpoint that was disabled; events are sent there again."""
    wanted = UpdateWebhookEndpoint(coserve=EndpointOptions(disabled=False))
    return await _update(request, resources, admin, endpoint_id, wanted)


@router.post("/{endpoint_id}/delete")
async def delete_endpoint(
    request: Request, resources: ResourcesDep, admin: OperatorDep, endpoint_id: str
) -> Response:
    """Remove it, with what was on its way there."""
    found = await _found(resources, admin, endpoint_id)
    async with resources.database.unit_of_work() as work:
        await endpoints.delete(work, found.project_id, found.id)
        await admin.actor(request).record(
            work, Action.WEBHOOK_DELETED, found.id, project_id=found.project_id
        )
    return _to_webhooks(request)


@router.post("/{endpoint_id}/rotate", dependencies=[SentOnce])
async def rotate_secret(
    request: Request,
    resources: ResourcesDep,
    admin: OperatorDep,
    endpoint_id: str,
    keep_old: Annotated[bool, Form()] = False,
) -> Response:
    """Give it a new secret, shown in the reply alone."""
    found = await _found(resources, admin, endpoint_id)
    async with resources.database.unit_of_work() as work:
        rotated = await endpoints.rotate_secret(work, found.project_id, found.id, keep_old=keep_old)
        await admin.actor(request).noting(Action.WEBHOOK_ROTATED)(work, rotated)
        secret = signature.shown(rotated.secret)
    return await webhooks_page(request, resources, admin, secret=secret)


async def _found(resources: Resources, admin: Admin, endpoint_id: str) -> WebhookEndpoint:
    """An endpoint of the organisation.

    Raises:
        WebhookEndpointNotFound: There is none of this id.
    """
    async with resources.database.unit_of_work() as work:
        found = await overview.find(work, admin.organization_id, endpoint_id[:64])
    if found is None:
        raise WebhookEndpointNotFound(endpoint_id[:64])
    return found


def _to_webhooks(request: Request) -> Response:
    return RedirectResponse(f"{request.scope['root_path']}/webhooks", 303)


@router.post("/{endpoint_id}/test")
async def test_endpoint(
    request: Request, resources: ResourcesDep, admin: OperatorDep, endpoint_id: str
) -> Response:
    """Send a sample event now, and say what the receiver answered."""
    async with resources.database.unit_of_work() as work:
        found = await overview.find(work, admin.organization_id, endpoint_id[:64])
        if found is None:
            raise WebhookEndpointNotFound(endpoint_id[:64])
        await admin.actor(request).record(
            work, Action.WEBHOOK_TESTED, found.id, project_id=found.project_id
        )
    event_type = SAMPLE if SAMPLE in found.event_types else found.event_types[0]
    try:
        async with resources.webhook_probes.probing(found.project_id):
            status = await endpoints.test(
                resources.database,
                resources.sender,
                resources.clock,
                found.project_id,
                found.id,
                event_type,
            )
    except ApiError as refused:
        return await webhooks_page(request, resources, admin, refused=refused)
    good = 200 <= status < 300
    said = f"“{found.name}” answered a sample of {event_type} with {status}."
    return await webhooks_page(request, resources, admin, said=said, good=good)


@router.post("/deliveries/{delivery_id}/replay")
async def replay_delivery(
    request: Request, resources: ResourcesDep, admin: OperatorDep, delivery_id: str
) -> Response:
    """Send a delivery that has ended once more, under its old id."""
    async with resources.database.unit_of_work() as work:
        project_id = await overview.replay(work, admin.organization_id, delivery_id[:64])
        if project_id is not None:
            await admin.actor(request).record(
                work, Action.WEBHOOK_REPLAYED, delivery_id[:64], project_id=project_id
            )
    if project_id is None:
        refused = Conflict(
            "This delivery is still on its way, or its endpoint is disabled. "
            "A test that is answered well enables an endpoint."
        )
        return await webhooks_page(request, resources, admin, refused=refused)
    await resources.queue.wake(DELIVER)
    return RedirectResponse(f"{request.scope['root_path']}/webhooks", 303)
