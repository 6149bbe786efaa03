"""Webhook endpoints are managed by the projects they belong to (row W-06)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_errors import WebhookEndpointNotFound
from api.batch_shapes import may_be_id
from api.errors import InvalidRequest
from batch.webhooks import signature
from batch.webhooks.events import (
    EVENT_TYPES,
    WEBHOOK_PREFIX,
    body_of,
    new_event_id,
    sample_id,
)
from batch.webhooks.schemas import CreateWebhookEndpoint, UpdateWebhookEndpoint
from batch.webhooks.sender import Attempt, Failure, Sender
from batch.webhooks.targets import Unreached
from service.clock import Clock
from store.models import WebhookEndpoint
from store.repositories import statements
from store.repositories import webhook_endpoint as endpoints
from store.session import Database
from store.types import new_id

MAX_ENDPOINTS: Final = 20
"""Of one project."""

MAX_NAME_CHARS: Final = 256
OLD_SECRET_LIFE: Final = timedelta(hours=24)

_UNREACHED: Final = {
    Failure.TIMEOUT: "did not answer in time",
    Failure.CERTIFICATE: "has no valid certificate",
    Failure.REFUSED_ADDRESS: "does not resolve to a public address",
    Failure.BAD_ANSWER: "did not answer in HTTP",
}


Note = Callable[[AsyncSession, WebhookEndpoint], Awaitable[None]]
"""What is written in the transaction of an act."""


async def _nothing(session: AsyncSession, endpoint: WebhookEndpoint) -> None:
    del session, endpoint


async def create(
    database: Database,
    sender: Sender,
    project_id: str,
    request: CreateWebhookEndpoint,
    *,
    note: Note = _nothing,
) -> WebhookEndpoint:
    """A new endpoint with a secret of its own.

    Raises:
        InvalidRequest: A field has a value we do not serve, or the project has too many.
    """
    _check_name(request.name)
    event_types = _checked_types(request.event_types)
    await sender.check(request.url)
    async with database.unit_of_work() as session:
        if await endpoints.count(session, project_id) >= MAX_ENDPOINTS:
            raise InvalidRequest(f"A project may have at most {MAX_ENDPOINTS} webhook endpoints.")
        made = await endpoints.add(
            session,
            project_id=project_id,
            name=request.name,
            url=request.url,
            event_types=event_types,
            secret=signature.new_key(),
        )
        await note(session, made)
        return made


async def find(
    session: AsyncSession, project_id: str, endpoint_id: str, *, lock: bool = False
) -> WebhookEndpoint:
    """The project's endpoint.

    Raises:
        WebhookEndpointNotFound: There is none of this id in the project.
    """
    endpoint = None
    if may_be_id(endpoint_id):
        endpoint = await endpoints.get(session, project_id, endpoint_id, lock=lock)
    if endpoint is None:
        raise WebhookEndpointNotFound(endpoint_id[:64])
    return endpoint


async def update(
    database: Database,
    sender: Sender,
    project_id: str,
    endpoint_id: str,
    request: UpdateWebhookEndpoint,
    *,
    note: Note = _nothing,
) -> WebhookEndpoint:
    """Change what is given. Another URL gives a disabled endpoint a new chance.

    Raises:
        WebhookEndpointNotFound: There is none of this id in the project.
        InvalidRequest: A field has a value we do not serve.
    """
    async with database.unit_of_work() as session:
        await find(session, project_id, endpoint_id)
    told = request.model_dump(exclude={"coserve"})
    given = {key: value for key, value in told.items() if value is not None}
    if request.name is not None:
        _check_name(request.name)
    if request.event_types is not None:
        given["event_types"] = _checked_types(request.event_types)
    if request.url is not None:
        await sender.check(request.url)
    async with database.unit_of_work() as session:
        endpoint = await find(session, project_id, endpoint_id, lock=True)
        changed = {key for key, value in given.items() if getattr(endpoint, key) != value}
        for key in changed:
            setattr(endpoint, key, given[key])
        if changed:
            endpoint.updated_at = await statements.now(session)
        if "url" in changed:
            endpoint.failing_since_at = endpoint.disabled_at = None
        if request.coserve is not None and request.coserve.disabled is not None:
            _set_disabled(endpoint, request.coserve.disabled, await statements.now(session))
        await note(session, endpoint)
        return endpoint


def _set_disabled(endpoint: WebhookEndpoint, disabled: bool, now: datetime) -> None:
    if not disabled:
        endpoint.failing_since_at = endpoint.disabled_at = None
    elif endpoint.disabled_at is None:
        endpoint.disabled_at = now


async def delete(session: AsyncSession, project_id: str, endpoint_id: str) -> None:
    """Remove an endpoint and what was on its way there.

    Raises:
        WebhookEndpointNotFound: There is none of this id in the project.
    """
    await session.delete(await find(session, project_id, endpoint_id))


async def rotate_secret(
    session: AsyncSession, project_id: str, endpoint_id: str, *, keep_old: bool
) -> WebhookEndpoint:
    """Give the endpoint a new secret; if asked for, deliveries are signed with both for a day.

    Raises:
        WebhookEndpointNotFound: There is none of this id in the project.
    """
    endpoint = await find(session, project_id, endpoint_id, lock=True)
    now = await statements.now(session)
    endpoint.old_secret = endpoint.secret if keep_old else None
    endpoint.old_secret_until_at = now + OLD_SECRET_LIFE if keep_old else None
    endpoint.secret = signature.new_key()
    endpoint.updated_at = now
    return endpoint


async def test(
    database: Database,
    sender: Sender,
    clock: Clock,
    project_id: str,
    endpoint_id: str,
    event_type: str,
) -> int:
    """Send a sample event now, once; the status of the answer. A 2xx enables the endpoint again.

    Raises:
        WebhookEndpointNotFound: There is none of this id in the project.
        InvalidRequest: No such event, or the receiver did not answer.
    """
    async with database.unit_of_work() as session:
        endpoint = await find(session, project_id, endpoint_id)
        now = await statements.now(session)
    if event_type not in EVENT_TYPES:
        raise InvalidRequest(_SERVED, param="event_type")
    keys = [endpoint.secret]
    if endpoint.old_secret and endpoint.old_secret_until_at and endpoint.old_secret_until_at > now:
        keys.append(endpoint.old_secret)
    attempt = await sender.post(
        endpoint.url,
        webhook_id=new_id(WEBHOOK_PREFIX),
        body=body_of(new_event_id(), event_type, sample_id(event_type), clock.now()),
        keys=keys,
    )
    if attempt.failure is None:
        async with database.unit_of_work() as session:
            await endpoints.succeeded(session, endpoint_id)
    return _status_of(attempt)


def _status_of(attempt: Attempt) -> int:
    if attempt.status is None:
        why = _UNREACHED.get(attempt.failure or Failure.CONNECTION, "cannot be reached")
        raise Unreached(f"The endpoint {why}.")
    return attempt.status


_SERVED: Final = f"The event types are {', '.join(EVENT_TYPES)}."


def _checked_types(event_types: Sequence[str]) -> list[str]:
    """Each once, in our order."""
    if not event_types or not set(event_types) <= set(EVENT_TYPES):
        raise InvalidRequest(_SERVED, param="event_types")
    return [one for one in EVENT_TYPES if one in event_types]


def _check_name(name: str) -> None:
    if not 1 <= len(name) <= MAX_NAME_CHARS or not name.isprintable() or not name.strip():
        raise InvalidRequest(
            f"The name must have 1 to {MAX_NAME_CHARS} printable characters.", param="name"
        )
