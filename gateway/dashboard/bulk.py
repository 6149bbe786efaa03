"""One act on many batches at once: those that were ticked in the list."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from api.errors import InvalidRequest, NotFound
from batch import steer
from batch.finish.cancel import cancel
from batch.queue import DISPATCH, STAGES
from gateway.dashboard.access import AdminDep, CheckedForm, ResourcesDep
from gateway.dashboard.steering import Act, Helm
from gateway.tenants.actor import Action

router = APIRouter(dependencies=[CheckedForm])

ACTS: Final[dict[str, tuple[Action, Act]]] = {
    "pause": (Action.BATCH_PAUSED, steer.pause),
    "resume": (Action.BATCH_RESUMED, steer.resume),
    "cancel": (Action.BATCH_CANCELLED, cancel),
    "first": (Action.BATCH_UPDATED, partial(steer.prioritize, priority=steer.MAX_PRIORITY)),
}
"""`first`: before every other batch of its project."""


@router.post("/batches/acts")
async def act_on_many(
    request: Request,
    resources: ResourcesDep,
    admin: AdminDep,
    act: Annotated[str, Form()],
    batch: Annotated[list[str], Form(max_length=200)],
    kept: Annotated[str, Form(max_length=2000)] = "",
) -> Response:
    """Do it to each, in a transaction of its own; those that ended meanwhile are left as they are.

    Raises:
        InvalidRequest: There is no such act.
    """
    if act not in ACTS:
        raise InvalidRequest("There is no such act.")
    action, work = ACTS[act]
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
    path, words = f"{request.scope['root_path']}/batches", urlencode(parse_qsl(kept))
    return RedirectResponse(f"{path}?{words}" if words else path, 303)
