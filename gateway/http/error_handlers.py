"""The one place where errors become responses (rows T-11 to T-17)."""

from __future__ import annotations

from typing import cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionFree
from starlette.exceptions import HTTPException
from starlette.responses import Response

from api.batch_errors import StorageFull
from api.errors import (
    ApiError,
    AuthenticationFailed,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    Overloaded,
    PermissionDenied,
    error_body,
)
from api.json_output import dump
from api.refused_fields import unknown_field
from batch.storage import FILES
from gateway.http.unknown_urls import unknown_url, why_not_allowed
from store.failures import is_full, why_away

JSON = "application/json"


def error_response(error: ApiError) -> Response:
    """The response an error stands for."""
    return Response(
        dump(error_body(error)),
        status_code=error.status,
        headers=error.headers,
        media_type=JSON,
    )


async def _on_api_error(request: Request, error: Exception) -> Response:
    if isinstance(error, StorageFull):
        request.app.state.storage.note(FILES)
    return error_response(cast(ApiError, error))


async def _on_http_error(request: Request, error: Exception) -> Response:
    error = cast(HTTPException, error)
    if isinstance(error.__cause__, ApiError):  # met while the framework read the body
        return error_response(error.__cause__)
    known: ApiError
    match error.status_code:
        case 404:
            known = unknown_url(request)
        case 405:
            known = MethodNotAllowed(
                f"Not allowed to {request.method} on {request.url.path}.{why_not_allowed(request)}"
            )
        case 401:
            known = AuthenticationFailed("Authentication failed.")
        case 403:
            known = PermissionDenied("Not allowed.")
        case status if status < 500:
            known = InvalidRequest("The request is not valid.")
        case _:
            known = InternalError("The server had an error while processing your request.")
    if error.headers:
        known.headers.update(error.headers)
    return error_response(known)


async def _on_validation_error(_: Request, error: Exception) -> Response:
    first = cast(RequestValidationError, error).errors()[0]
    place, *path = [str(part) for part in first["loc"]]
    if first["type"] == "json_invalid":
        return error_response(InvalidRequest("The body is not valid JSON.", code="invalid_json"))
    param = ".".join(path) or (None if place == "body" else place)
    if first["type"] == "missing" and param:
        missing = InvalidRequest(
            f"Missing required parameter: '{param}'.",
            param=param,
            code="missing_required_parameter",
        )
        return error_response(missing)
    if first["type"] == "extra_forbidden":
        return error_response(unknown_field(param or "", ()))
    # pydantic's message describes the rule; its `input` would repeat the value.
    message = f"Invalid value for '{param}': {first['msg']}." if param else f"{first['msg']}."
    return error_response(InvalidRequest(message, param=param, code="invalid_value"))


async def _on_database_lost(_: Request, error: Exception) -> Response:
    if is_full(error):
        return error_response(
            Overloaded("There is no room for this at the moment.", code="storage_full")
        )
    return error_response(
        Overloaded(f"The database {why_away(error)} at the moment.", code="database_unavailable")
    )


def install_error_handlers(app: FastAPI) -> None:
    """Make every error of `app` leave in the one envelope.

    What no handler knows is met by `gateway.http.pipeline`.
    """
    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    for lost in (OperationalError, InterfaceError, NoConnectionFree):
        app.add_exception_handler(lost, _on_database_lost)
