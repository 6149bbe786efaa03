"""The one place where errors become responses (rows T-11 to T-17)."""

from __future__ import annotations

from typing import Final, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionFree
from starlette.exceptions import HTTPException
from starlette.responses import Response

from api.batch_errors import StorageFull, StorageUnavailable
from api.errors import (
    ApiError,
    AuthenticationFailed,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    Overloaded,
    PermissionDenied,
    UnsupportedMediaType,
    error_body,
)
from api.json_output import dump
from api.refused_fields import unknown_field
from api.rules import wrong, wrong_type
from batch.storage import FILES, FILES_AWAY
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


def noted_response(request: Request, error: ApiError) -> Response:
    """The same; what it says of the file store is noted for whoever asks for its state."""
    if isinstance(error, StorageFull):
        request.app.state.storage.note(FILES)
    elif isinstance(error, StorageUnavailable):
        request.app.state.storage.note(FILES_AWAY)
    return error_response(error)


async def _on_api_error(request: Request, error: Exception) -> Response:
    return noted_response(request, cast(ApiError, error))


def met_while_reading(error: Exception) -> Exception:
    """The error of ours that the framework met while it read the body, else `error` itself.

    The framework keeps its error in a frame that the tracebacks of both lead to: a circle with the
    whole request in it, which the collector would stop every stream to find. So they go.
    """
    cause = error.__cause__
    if not isinstance(cause, ApiError):
        return error
    error.__traceback__ = cause.__traceback__ = None
    return cause


async def _on_http_error(request: Request, error: Exception) -> Response:
    met = met_while_reading(error)
    if isinstance(met, ApiError):
        return noted_response(request, met)
    error = cast(HTTPException, error)
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
    param = ".".join(path) or (None if place == "body" else place)
    if param is None and first["type"] == "missing":
        empty = InvalidRequest("The body is empty: JSON is expected.", code="invalid_json")
        return error_response(empty)
    if param is None and first["type"] == "model_attributes_type":  # it was not even read as JSON
        return error_response(UnsupportedMediaType("The body must be application/json."))
    if first["type"] == "missing":
        missing = InvalidRequest(
            f"Missing required parameter: '{param}'.",
            param=param,
            code="missing_required_parameter",
        )
        return error_response(missing)
    if first["type"] == "extra_forbidden":
        return error_response(unknown_field(param or "", ()))
    if expected := _EXPECTED.get(first["type"]):
        return error_response(wrong_type(str(param), expected))
    # pydantic's message describes the rule; its `input` would repeat the value.
    rule = first["msg"].replace("Input should ", "must ").replace("Value error, ", "")
    return error_response(wrong(str(param), rule))


_EXPECTED: Final = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_parsing_size": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "a boolean",
    "bool_parsing": "a boolean",
    "list_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
"""What pydantic calls a wrong type, and what is expected."""


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
