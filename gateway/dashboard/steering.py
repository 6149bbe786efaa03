"""What an operator can do with a batch that is there: cancel, pause, resume, prefer, run again.

Each act is that of the API's route of the same name, for a batch of any project of the
organisation, and leaves an entry in the audit log in its transaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, Depends, Form, Request
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import RedirectResponse, Response

from api.errors import Conflict, InvalidRequest, NotFound
from batch import rerun, steer
from batch.finish.cancel import cancel
from batch.queue import DISPATCH, STAGES
from gateway.dashboard.access import Admin, AdminDep, CheckedForm, ResourcesDep
from gateway.dashboard.navigation import go_to_batch
from gateway.dashboard.resources import Resources
from gateway.tenants.actor import Action, Actor
from store.models import Batch
from store.repositories import batch_browser, overview
from store.repositories.batch_browser import BatchFilter
from store.session import Database

router = APIRouter(prefix="/batches", dependencies=[CheckedForm])

Act = Callable[[AsyncSession, str, str], Awaitable[Batch]]
"""What is done to the batch of a project: session, project id, batch id."""


@dataclass(frozen=True)
class Helm:
    """One operator's hands on one batch.

    Attributes:
        batch_id: As it stands in the address.
    """

    database: Database
    actor: Actor
    batch_id: str

    async def act(self, action: Action, act: Act, detail: Mapping[str, Any] | None = None) -> Batch:
        """Do it and note it; what came of it.

        Raises:
            NotFound: No such batch in the organisation.
            Conflict: It does not go with the batch's status.
        """
        async with self.database.unit_of_work(actor=self.actor.named) as work:
            found = await overview.one(work, self.actor.organization_id, self.batch_id)
            if found is None:
                raise NotFound(f"No batch found with id '{self.batch_id}'.")
            batch = found.batch
            made = await act(work, batch.project_id, batch.id)
            if made.id != batch.id:
                detail = {"data": {"new_batch_id": made.id}}
            await self.actor.record(
                work, action, batch.id, project_id=batch.project_id, detail=detail
            )
        return made

    async def act_while_live(
        self, action: Action, act: Act, detail: Mapping[str, Any] | None = None
    ) -> bool:
        """Whether it was done.

        A batch that ended meanwhile is no error: its page says how, and that is the answer.

        Raises:
            NotFound: No such batch in the organisation.
        """
        try:
            await self.act(action, act, detail)
        except Conflict:
            return False
        return True


async def _helm(request: Request, resources: ResourcesDep, admin: AdminDep, batch_id: str) -> Helm:
    return Helm(resources.database, admin.actor(request), batch_id[:64])


HelmDep = Annotated[Helm, Depends(_helm)]


@router.post("/{batch_id}/cancel")
async def cancel_batch(request: Request, resources: ResourcesDep, helm: HelmDep) -> Response:
    if await helm.act_while_live(Action.BATCH_CANCELLED, cancel):
        await resources.queue.wake(STAGES)
    return go_to_batch(request, helm.batch_id)


@router.post("/{batch_id}/pause")
async def pause_batch(request: Request, helm: HelmDep) -> Response:
    """Run no row of a batch for now."""
    await helm.act_while_live(Action.BATCH_PAUSED, steer.pause)
    return go_to_batch(request, helm.batch_id)


@router.post("/{batch_id}/resume")
async def resume_batch(request: Request, resources: ResourcesDep, helm: HelmDep) -> Response:
    """Let a paused batch go on."""
    if await helm.act_while_live(Action.BATCH_RESUMED, steer.resume):
        await resources.queue.wake(DISPATCH)
        await resources.queue.wake(STAGES)
    return go_to_batch(request, helm.batch_id)


@router.post("/{batch_id}/priority")
async def change_priority(
    request: Request, helm: HelmDep, priority: Annotated[int, Form()]
) -> Response:
    """Change a live batch's place among those of its project."""
    await helm.act_while_live(
        Action.BATCH_UPDATED,
        partial(steer.prioritize, priority=priority),
        {"changes_requested": {"priority": priority}},
    )
    return go_to_batch(request, helm.batch_id)


@router.post("/{batch_id}/retry")
async def retry_batch(request: Request, resources: ResourcesDep, helm: HelmDep) -> Response:
    """Run the unanswered rows of a batch that is over again; leads to the new batch.

    It belongs to the project and the key of the one it repeats, not to the operator's.
    """
    limit = resources.settings.batch_enqueued_tokens
    retry = await helm.act(
        Action.BATCH_RETRIED, partial(rerun.retry_failed, enqueued_token_limit=limit)
    )
    await resources.queue.wake(DISPATCH)
    return go_to_batch(request, retry.id)


# --- One act on many batches at once: those that were ticked in the list, or all that it matches.


ACTS: Final[dict[str, tuple[Action, Act]]] = {
    "pause": (Action.BATCH_PAUSED, steer.pause),
    "resume": (Action.BATCH_RESUMED, steer.resume),
    "cancel": (Action.BATCH_CANCELLED, cancel),
    "first": (Action.BATCH_UPDATED, partial(steer.prioritize, priority=steer.MAX_PRIORITY)),
}
"""`first`: before every other batch of its project."""


FILTER_WORDS: Final = ("group", "project", "model", "endpoint", "search")


@router.post("/acts")
async def act_on_many(
    request: Request,
    resources: ResourcesDep,
    admin: AdminDep,
    act: Annotated[str, Form()],
    batch: Annotated[list[str], Form(max_length=200)] = [],  # noqa: B006 - FastAPI copies it
    all_matching: Annotated[bool, Form(alias="all")] = False,
    kept: Annotated[str, Form(max_length=2000)] = "",
) -> Response:
    """Do it to each, in a transaction of its own; those that ended meanwhile are left as they are.

    With `all` to every live one that the filter of the list matches (`kept`), not only to those
    that are ticked.

    Raises:
        InvalidRequest: There is no such act.
    """
    if act not in ACTS:
        raise InvalidRequest("There is no such act.")
    action, work = ACTS[act]
    words = dict(parse_qsl(kept))
    if all_matching:
        batch = await _matching(resources, admin, words)
    for batch_id in batch:
        helm = Helm(resources.database, admin.actor(request), batch_id[:64])
        try:
            await helm.act_while_live(action, work)
        except NotFound:
            continue
    if act in ("cancel", "resume"):
        await resources.queue.wake(STAGES)
    if act in ("resume", "first"):
        await resources.queue.wake(DISPATCH)
    path = f"{request.scope['root_path']}/batches"
    return RedirectResponse(f"{path}?{urlencode(words)}" if words else path, 303)


async def _matching(resources: Resources, admin: Admin, words: Mapping[str, str]) -> list[str]:
    """Ids of the live batches that a filter matches."""
    wanted = BatchFilter(**{name: words.get(name, "") for name in FILTER_WORDS})
    async with resources.database.snapshot() as work:
        return [*await batch_browser.live_ids(work, admin.organization_id, wanted)]
