"""The pages: each is its living fragments in a frame."""

from __future__ import annotations

import json
import secrets
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import HTMLResponse, Response

from api.errors import ApiError
from batch.intake.line import ENDPOINTS
from batch.intake.upload import MAX_BATCH_FILE_BYTES
from batch.steer import MAX_PRIORITY, MIN_PRIORITY
from batch.webhooks.endpoints import MAX_ENDPOINTS
from batch.webhooks.events import EVENT_TYPES
from engine_adapter.client.base import CHAT_PATH
from gateway.auth.roles import Permission, may
from gateway.dashboard.access import CSRF_FIELD, ONCE_FIELD, Admin, AdminDep, ResourcesDep
from gateway.dashboard.batch_list import MAX_SEARCH, BatchesPage
from gateway.dashboard.batch_page import BatchPage
from gateway.dashboard.batch_view import LABELS
from gateway.dashboard.engine_list import EnginesPage
from gateway.dashboard.fragments import LivingPage, SharedReadings
from gateway.dashboard.isolation import IsolationPage
from gateway.dashboard.overview import OverviewPage, span_of
from gateway.dashboard.resources import Resources
from gateway.dashboard.scheduler import NUM_STEPS, SchedulerPage
from gateway.dashboard.session import DashboardSession
from gateway.dashboard.templating import hidden, render
from gateway.dashboard.webhooks import WebhooksPage
from gateway.history.reading import CHART_SPANS
from store.repositories import (
    batch_browser,
    progress,
    quota,
    webhook_endpoint,
)
from store.repositories import project as projects
from store.repositories.batch_browser import BatchFilter
from store.states import BatchStatus

router = APIRouter()

GROUPS = {
    "": "Any status",
    "live": "Live",
    "done": "Completed",
    "problem": "Failed or stopped",
    **{str(one): f"Only {LABELS.get(one, one)}" for one in BatchStatus},
}


def page(
    request: Request,
    resources: Resources,
    session: DashboardSession,
    template: str,
    *,
    status: int = 200,
    admin: Admin | None = None,
    **values: Any,
) -> HTMLResponse:
    """A whole page with what every frame needs."""
    csrf_token = resources.signer.csrf_token(session)
    html = render(
        template,
        root=request.scope["root_path"],
        api_url=str(request.base_url).removesuffix("/").removesuffix(request.scope["root_path"])
        + "/v1",
        path=request.url.path,
        csrf_token=csrf_token,
        csrf_input=hidden(CSRF_FIELD, csrf_token),
        once_input=hidden(ONCE_FIELD, secrets.token_urlsafe(12)),
        logged_in=session.logged_in and status != 401,
        key_name=admin.key.name if admin else "",
        role=(admin.key.role or "") if admin else "",
        may={str(one): admin is not None and may(admin.key.role, one) for one in Permission},
        **values,
    )
    return HTMLResponse(html, status)


async def _living_page(
    request: Request,
    resources: Resources,
    admin: AdminDep,
    template: str,
    living: LivingPage,
    stream: dict[str, str],
    **values: Any,
) -> HTMLResponse:
    readings: SharedReadings = request.app.state.readings
    fragments = await readings.read(living, anew=True)
    return page(
        request,
        resources,
        admin.session,
        template,
        admin=admin,
        f=fragments,
        stream_url=f"{request.scope['root_path']}/events?{urlencode(stream)}",
        **values,
    )


@router.get("/")
async def front(
    request: Request, resources: ResourcesDep, admin: AdminDep, window: str = ""
) -> Response:
    """The overview: whether chat is safe, what is harvested, what is wrong."""
    word, _ = span_of(window)
    living = OverviewPage(admin.organization_id, admin.key.project_id, word)
    stream = {"view": "overview", "window": word}
    return await _living_page(
        request, resources, admin, "overview.html", living, stream, spans=CHART_SPANS, span=word
    )


@router.get("/scheduler")
async def scheduler(request: Request, resources: ResourcesDep, admin: AdminDep) -> Response:
    """The last steps of each engine."""
    living, stream = SchedulerPage(), {"view": "scheduler"}
    return await _living_page(
        request, resources, admin, "scheduler.html", living, stream, num_steps=NUM_STEPS
    )


@router.get("/isolation")
async def isolation(
    request: Request, resources: ResourcesDep, admin: AdminDep, window: str = ""
) -> Response:
    """What online requests get with batch work and without."""
    word, _ = span_of(window or "24h")
    stream = {"view": "isolation", "window": word}
    return await _living_page(
        request,
        resources,
        admin,
        "isolation.html",
        IsolationPage(word),
        stream,
        spans=CHART_SPANS,
        span=word,
    )


class BatchesQuery(BaseModel):
    """What the address of the list says."""

    group: str = Field("", max_length=64)
    project: str = Field("", max_length=64)
    model: str = Field("", max_length=256)
    endpoint: str = Field("", max_length=64)
    search: str = Field("", max_length=MAX_SEARCH)
    order: str = Field("", max_length=64)
    after: str = Field("", max_length=64)

    def wanted(self) -> BatchFilter:
        words = {name: word.strip() for name, word in self.model_dump().items() if name != "after"}
        return BatchFilter(**words)


@router.get("/batches")
async def batches(
    request: Request,
    resources: ResourcesDep,
    admin: AdminDep,
    query: Annotated[BatchesQuery, Query()],
) -> Response:
    """The batches of the organisation that the address asks for."""
    wanted = query.wanted()
    async with resources.database.snapshot() as work:
        owners = await projects.page(work, admin.organization_id, include_archived=True)
        models = await batch_browser.models(work, admin.organization_id)
    return await _living_page(
        request,
        resources,
        admin,
        "batches.html",
        BatchesPage(admin.organization_id, wanted, query.after or None),
        {"view": "batches", "after": query.after, **wanted.words()},
        wanted=wanted,
        after=query.after,
        kept=urlencode(wanted.words()),
        groups=GROUPS,
        owners=owners,
        models=models,
        endpoints=ENDPOINTS,
        orders=batch_browser.ORDERS,
    )


@router.get("/batches/new")
async def new_batch(request: Request, resources: ResourcesDep, admin: AdminDep) -> Response:
    """The form that submits a batch."""
    return await new_batch_page(request, resources, admin)


async def new_batch_page(
    request: Request,
    resources: Resources,
    admin: AdminDep,
    *,
    error: str = "",
    status: int = 200,
) -> HTMLResponse:
    """The form, with what was wrong with the last try."""
    served = [model.id for model in resources.engine_pool.models() if model.up]
    project_id = admin.key.project_id
    async with resources.database.snapshot() as work:
        reading = await progress.recent_service(work)
        limit = await quota.project_limit(work, project_id)
        enqueued = {one: await quota.enqueued_tokens(work, project_id, one) for one in served}
        receivers = await webhook_endpoint.page(work, project_id, after=None, limit=MAX_ENDPOINTS)
    service = {
        "models": served,
        "bytes_per_s": reading.live_bytes_per_s or reading.past_bytes_per_s,
        "backlog_bytes": reading.backlog_bytes,
        "limit": resources.settings.batch_enqueued_tokens if limit is None else limit,
        "enqueued": enqueued,
    }
    return page(
        request,
        resources,
        admin.session,
        "new_batch.html",
        status=status,
        admin=admin,
        error=error,
        endpoints=ENDPOINTS,
        example=_example_line(served[0] if served else "MODEL"),
        max_bytes=MAX_BATCH_FILE_BYTES,
        service=json.dumps(service),
        min_priority=MIN_PRIORITY,
        max_priority=MAX_PRIORITY,
        receivers=receivers,
    )


def _example_line(model: str) -> str:
    """A line as it stands in a file: what is copied from the page is accepted."""
    question = {"role": "user", "content": "Capital of France?"}
    body = {"model": model, "messages": [question], "max_tokens": 64}
    line = {"custom_id": "row-1", "method": "POST", "url": CHAT_PATH, "body": body}
    return json.dumps(line, ensure_ascii=False)


@router.get("/batches/{batch_id}")
async def one_batch(
    request: Request, resources: ResourcesDep, admin: AdminDep, batch_id: str
) -> Response:
    living = BatchPage(admin.organization_id, batch_id[:64])
    stream = {"view": "batch", "batch_id": batch_id[:64]}
    return await _living_page(request, resources, admin, "batch.html", living, stream)


@router.get("/engines")
async def engines(request: Request, resources: ResourcesDep, admin: AdminDep) -> Response:
    stream = {"view": "engines"}
    return await _living_page(request, resources, admin, "engines.html", EnginesPage(), stream)


@router.get("/webhooks")
async def webhooks(request: Request, resources: ResourcesDep, admin: AdminDep) -> Response:
    return await webhooks_page(request, resources, admin)


async def webhooks_page(
    request: Request,
    resources: Resources,
    admin: AdminDep,
    *,
    refused: ApiError | None = None,
    secret: str = "",
    said: str = "",
    good: bool = True,
) -> HTMLResponse:
    """The webhooks, with what came of the last act."""
    return await _living_page(
        request,
        resources,
        admin,
        "webhooks.html",
        WebhooksPage(admin.key.project_id),
        {"view": "webhooks"},
        status=200 if refused is None else refused.status,
        error="" if refused is None else refused.message,
        event_types=EVENT_TYPES,
        secret=secret,
        said=said,
        good=good,
    )
