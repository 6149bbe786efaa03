"""Wire shapes of webhook endpoints (rows W-06, W-07)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, Self

from pydantic import BaseModel, Field

from api.batch_shapes import BODY, unix_s
from batch.webhooks import signature
from batch.webhooks.events import EVENT_TYPES
from store.models import WebhookEndpoint


class CreateWebhookEndpoint(BaseModel):
    """The body of `POST /webhook_endpoints`."""

    model_config = BODY

    event_types: list[str]
    name: str
    url: str


class EndpointOptions(BaseModel):
    """The key `coserve` of a change: ours."""

    model_config = BODY

    disabled: bool | None = None


class UpdateWebhookEndpoint(BaseModel):
    """The body of `POST /webhook_endpoints/{webhook_endpoint_id}`; what is absent stays."""

    model_config = BODY

    event_types: list[str] | None = None
    name: str | None = None
    url: str | None = None
    coserve: EndpointOptions | None = Field(default=None, description="Ours, not OpenAI's.")


class RotateSecret(BaseModel):
    """The body of `POST …/rotate_secret`."""

    model_config = BODY

    keep_old_secret_active_for_24_hours: bool = False


class TestWebhookEndpoint(BaseModel):
    """The body of `POST …/test`."""

    __test__ = False  # no test class
    model_config = BODY

    event_type: str


class EndpointHealth(StrEnum):
    """How an endpoint gets on."""

    OK = "ok"
    FAILING = "failing"
    DISABLED = "disabled"


class EndpointExtension(BaseModel):
    """The key `coserve` of an endpoint: ours."""

    status: EndpointHealth
    failing_since: int | None
    disabled_at: int | None

    @classmethod
    def of(cls, endpoint: WebhookEndpoint) -> Self:
        """What is known of a row."""
        status = EndpointHealth.OK
        if endpoint.disabled_at is not None:
            status = EndpointHealth.DISABLED
        elif endpoint.failing_since_at is not None:
            status = EndpointHealth.FAILING
        return cls(
            status=status,
            failing_since=unix_s(endpoint.failing_since_at),
            disabled_at=unix_s(endpoint.disabled_at),
        )


class WebhookEndpointObject(BaseModel):
    """One endpoint, without its secret."""

    id: str
    object: Literal["webhook_endpoint"] = "webhook_endpoint"
    created_at: int
    updated_at: int
    event_types: list[str]
    name: str
    url: str
    signing_secret_hint: str
    coserve: EndpointExtension = Field(description="Ours, not OpenAI's.")

    @classmethod
    def of(cls, endpoint: WebhookEndpoint) -> Self:
        """The wire shape of a row."""
        return cls.model_validate(_shape(endpoint))


class WebhookEndpointWithSecret(WebhookEndpointObject):
    """The same where the secret is new: the only times that it is shown."""

    signing_secret: str = Field(repr=False)

    @classmethod
    def of(cls, endpoint: WebhookEndpoint) -> Self:
        """The wire shape of a row, with its secret."""
        secret = signature.shown(endpoint.secret)
        return cls.model_validate({**_shape(endpoint), "signing_secret": secret})


def _shape(endpoint: WebhookEndpoint) -> dict[str, object]:
    return {
        "id": endpoint.id,
        "created_at": unix_s(endpoint.created_at),
        "updated_at": unix_s(endpoint.updated_at),
        "event_types": endpoint.event_types,
        "name": endpoint.name,
        "url": endpoint.url,
        "signing_secret_hint": signature.hint(endpoint.secret),
        "coserve": EndpointExtension.of(endpoint),
    }


class WebhookEndpointList(BaseModel):
    """A page of endpoints; all five keys always."""

    object: Literal["list"] = "list"
    data: list[WebhookEndpointObject]
    first_id: str | None
    last_id: str | None
    has_more: bool

    @classmethod
    def of(cls, endpoints: Sequence[WebhookEndpoint], *, has_more: bool) -> Self:
        """The wire shape of a page of rows."""
        return cls(
            data=[WebhookEndpointObject.of(endpoint) for endpoint in endpoints],
            first_id=endpoints[0].id if endpoints else None,
            last_id=endpoints[-1].id if endpoints else None,
            has_more=has_more,
        )


class WebhookEndpointDeleted(BaseModel):
    """What is left of a deleted endpoint."""

    id: str
    object: Literal["webhook_endpoint.deleted"] = "webhook_endpoint.deleted"
    deleted: Literal[True] = True


class WebhookEndpointTested(BaseModel):
    """What a test came to: the receiver answered, with this status."""

    object: Literal["webhook_endpoint.test"] = "webhook_endpoint.test"
    webhook_endpoint_id: str
    event_type: str
    status_code: int
    success: Literal[True] = True


class WebhookEventTypes(BaseModel):
    """The types an endpoint may ask for."""

    object: Literal["list"] = "list"
    data: list[str] = list(EVENT_TYPES)
