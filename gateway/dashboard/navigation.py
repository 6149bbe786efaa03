"""Where an action leads."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import RedirectResponse, Response


def go_to_batch(request: Request, batch_id: str) -> Response:
    """To a batch's page; works for forms and for scripts that follow no redirect."""
    path = f"{request.scope['root_path']}/batches/{batch_id}"
    if request.headers.get("hx-request") == "true":
        return Response(status_code=204, headers={"hx-redirect": path})
    return RedirectResponse(path, 303)
