"""Every error a caller can meet, and the one builder of its body.

    ApiError
    ├─ InvalidRequest 400 ── ContextLengthExceeded
    ├─ AuthenticationFailed 401
    ├─ PermissionDenied 403
    ├─ NotFound 404 ── ModelNotFound
    ├─ MethodNotAllowed 405
    ├─ RequestTimeout 408
    ├─ Conflict 409
    ├─ PayloadTooLarge 413
    ├─ TargetTooLong 414
    ├─ UnsupportedMediaType 415
    ├─ RequestQuarantined 422
    ├─ RequestFailedAlone 422
    ├─ HeadTooLarge 431
    ├─ RateLimited 429 ┬─ TokensRateLimited
    │                  ├─ QuotaExceeded
    │                  └─ NoFlexRoom
    ├─ InternalError 500
    └─ Overloaded 503 ── EngineUnavailable 503

The HTTP status and OpenAI's `type` and `code` sit on the class; `param`, the message and extra
headers on the instance. Messages never hold prompts, keys, paths or SQL (row Z-12).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

_UNSET: Any = object()


class ApiError(Exception):
    """An error with a place in the OpenAI envelope (rows T-11 to T-25)."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    default_code: ClassVar[str | None] = None
    default_headers: ClassVar[Mapping[str, str]] = {}

    code: str | None

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = _UNSET,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = self.default_code if code is _UNSET else code
        self.headers: dict[str, str] = {**self.default_headers, **(headers or {})}


class InvalidRequest(ApiError):
    """The request itself is wrong; sending it again cannot help."""

    status = 400
    type = "invalid_request_error"


class ContextLengthExceeded(InvalidRequest):
    """Prompt and answer do not fit the model's context (row T-25)."""

    default_code = "context_length_exceeded"


class AuthenticationFailed(ApiError):
    """No key, or one that is unknown, revoked or expired."""

    status = 401
    type = "invalid_request_error"
    default_code = "invalid_api_key"
    default_headers: ClassVar[Mapping[str, str]] = {"www-authenticate": "Bearer"}


class PermissionDenied(ApiError):
    """The key is good, but may not do this."""

    status = 403
    type = "invalid_request_error"
    default_code = "insufficient_permissions"


class NotFound(ApiError):
    """No such object in the caller's project (row T-29)."""

    status = 404
    type = "invalid_request_error"


class ModelNotFound(NotFound):
    """No engine serves this model (row T-24)."""

    default_code = "model_not_found"


class MethodNotAllowed(ApiError):
    """The route exists, the method does not."""

    status = 405
    type = "invalid_request_error"
    default_code = "method_not_allowed"


class RequestTimeout(ApiError):
    """The request did not arrive in time."""

    status = 408
    type = "invalid_request_error"
    default_code = "request_timeout"


class Conflict(ApiError):
    """The object is in a state that does not allow this.

    Attributes:
        current: The state found.
        expected: The states that would have allowed it.
    """

    status = 409
    type = "invalid_request_error"
    # SDKs repeat a 409 twice by themselves (rows T-18, T-19): it cannot help here.
    default_headers: ClassVar[Mapping[str, str]] = {"x-should-retry": "false"}

    def __init__(
        self,
        message: str,
        *,
        current: str | None = None,
        expected: tuple[str, ...] = (),
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, param=param, code=code, headers=headers)
        self.current = current
        self.expected = expected


class PayloadTooLarge(ApiError):
    """The body is over the limit; it was not read to its end."""

    status = 413
    type = "invalid_request_error"
    default_code = "payload_too_large"


class TargetTooLong(ApiError):
    """The request's URL is over the limit."""

    status = 414
    type = "invalid_request_error"
    default_code = "url_too_long"


class HeadTooLarge(ApiError):
    """The request's head is over the limit."""

    status = 431
    type = "invalid_request_error"
    default_code = "headers_too_large"


class UnsupportedMediaType(ApiError):
    """The body is not of the type this route reads (row T-16)."""

    status = 415
    type = "invalid_request_error"
    default_code = "unsupported_media_type"


class RequestQuarantined(ApiError):
    """Engines were lost while they ran this request, so it is not run again for now."""

    status = 422
    type = "invalid_request_error"
    default_code = "engine_failure"
    default_headers: ClassVar[Mapping[str, str]] = {"x-should-retry": "false"}


class RequestFailedAlone(ApiError):
    """The engine raised an exception for this request, and for no other that ran with it."""

    status = 422
    type = "invalid_request_error"
    default_code = "engine_request_failed"
    default_headers: ClassVar[Mapping[str, str]] = {"x-should-retry": "false"}


class RateLimited(ApiError):
    """The caller is over its own limit of requests a minute (row T-21)."""

    status = 429
    type = "requests"
    default_code = "rate_limit_exceeded"
    default_headers: ClassVar[Mapping[str, str]] = {"retry-after": "1"}


class TokensRateLimited(RateLimited):
    """The caller is over its own limit of tokens a minute."""

    type = "tokens"


class QuotaExceeded(RateLimited):
    """The caller may use nothing at all; waiting cannot help (rows T-19, T-21)."""

    type = "insufficient_quota"
    default_code = "insufficient_quota"
    default_headers: ClassVar[Mapping[str, str]] = {"retry-after": "120", "x-should-retry": "false"}


class NoFlexRoom(RateLimited):
    """The engine has no spare capacity for a flex request (row C-27)."""

    type = "resource_unavailable"
    default_code = "resource_unavailable"
    default_headers: ClassVar[Mapping[str, str]] = {"retry-after": "5"}


class Overloaded(ApiError):
    """The service is full; this is nobody's own limit (row T-22)."""

    status = 503
    type = "server_error"
    default_code = "server_is_overloaded"
    default_headers: ClassVar[Mapping[str, str]] = {"retry-after": "2"}


class EngineUnavailable(Overloaded):
    """No engine answers; the request was not (fully) served."""

    default_code = "engine_unavailable"
    default_headers: ClassVar[Mapping[str, str]] = {"retry-after": "5"}


class EngineBusy(EngineUnavailable):
    """It is there, and turned a request about itself away or answered too late."""


class EngineNotReached(EngineUnavailable):
    """The connection was refused: the request never came to the engine."""


class InternalError(ApiError):
    """A defect of ours; the caller learns nothing but that."""

    status = 500
    type = "server_error"
    default_code = "internal_error"


def error_body(err: ApiError) -> dict[str, Any]:
    """The envelope: always the four keys, `code` a string or null (rows T-11, T-12)."""
    return {
        "error": {
            "message": _encodable(err.message),
            "type": err.type,
            "param": None if err.param is None else _encodable(err.param),
            "code": err.code,
        }
    }


def _encodable(text: str) -> str:
    """Words of a caller may hold half of a surrogate pair, for which UTF-8 has no bytes."""
    return text.encode(errors="replace").decode()
