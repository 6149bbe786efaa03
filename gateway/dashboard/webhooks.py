"""The page of webhooks: an organisation's endpoints and what was sent there lately."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from batch.webhooks.schemas import EndpointExtension
from gateway.dashboard.batch_view import TONES
from gateway.dashboard.fragments import Fragments
from gateway.dashboard.resources import Resources
from gateway.dashboard.templating import render
from store.models import WebhookDelivery
from store.repositories import webhook_delivery as deliveries
from store.repositories import webhook_overview as overview
from store.repositories.webhook_overview import EndpointOverview
from store.states import DeliveryStatus

MAX_ENDPOINTS = 100
DELIVERIES_EACH = 5
MAX_DELIVERIES = 50

HEALTH_TONES = {"ok": "good", "failing": "warn", "disabled": "bad"}
DELIVERY_TONES: Final[Mapping[str, str]] = {
    DeliveryStatus.DELIVERED: "good",
    DeliveryStatus.PENDING: "run",
    DeliveryStatus.FAILED: "bad",
}


@dataclass(frozen=True)
class EndpointView:
    """One endpoint as the page shows it."""

    source: EndpointOverview

    @property
    def health(self) -> str:
        """Its status, as the API names it."""
        return str(EndpointExtension.of(self.source.endpoint).status)

    @property
    def tone(self) -> str:
        """The kind of colour that goes with it."""
        return HEALTH_TONES[self.health]

    @property
    def address(self) -> str:
        """Its URL without the query, where receivers put secrets."""
        parts = urlsplit(self.source.endpoint.url)
        return f"{parts.scheme}://{parts.netloc}{parts.path}"

    @property
    def events(self) -> str:
        """The events that are sent to it, without their common beginning."""
        return ", ".join(one.removeprefix("batch.") for one in self.source.endpoint.event_types)


@dataclass(frozen=True)
class DeliveryView:
    """One delivery as the page shows it."""

    delivery: WebhookDelivery
    endpoint_name: str

    @property
    def event(self) -> str:
        """How the batch ended: `completed`, `failed`, `expired` or `cancelled`."""
        return self.delivery.event_type.removeprefix("batch.")

    @property
    def event_tone(self) -> str:
        """The kind of colour that goes with the batch's end."""
        return TONES[self.event]

    @property
    def tone(self) -> str:
        """The kind of colour that goes with the delivery."""
        return DELIVERY_TONES[self.delivery.status]

    @property
    def answer(self) -> str:
        """What came of the last attempt."""
        if self.delivery.attempts == 0:
            return "not tried yet"
        if self.delivery.last_status is not None:
            return str(self.delivery.last_status)
        return (self.delivery.last_error or "under way").replace("_", " ")


@dataclass(frozen=True)
class WebhooksPage:
    """The webhooks of the organisation that a project belongs to."""

    project_id: str

    @property
    def fresh_s(self) -> float:
        return 1.9

    async def read(self, resources: Resources) -> Fragments:
        async with resources.database.unit_of_work() as work:
            found = await overview.endpoints(work, self.project_id, limit=MAX_ENDPOINTS)
            names = {one.endpoint.id: one.endpoint.name for one in found}
            recent = await deliveries.recent(work, list(names), per_endpoint=DELIVERIES_EACH)
        endpoints = [EndpointView(one) for one in found]
        sent = [DeliveryView(one, names[one.endpoint_id]) for one in recent[:MAX_DELIVERIES]]
        now = found[0].now if found else None
        return Fragments(
            whole={
                "webhook-endpoints": render(
                    "fragments/webhook_endpoints.html", endpoints=endpoints
                ),
                "webhook-deliveries": render(
                    "fragments/webhook_deliveries.html", sent=sent, now=now
                ),
            },
            facts={"num_endpoints": len(endpoints), "endpoints": endpoints},
            statuses={f"{one.source.endpoint.name}": one.health for one in endpoints},
        )
