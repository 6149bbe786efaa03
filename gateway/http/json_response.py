"""Answers of the framework's routes, as all JSON leaves the service (`api.json_output`)."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

from api.json_output import dump


class JsonResponse(JSONResponse):
    """JSON in one line."""

    def render(self, content: Any) -> bytes:
        return dump(content)
