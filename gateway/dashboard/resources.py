"""What the dashboard uses of the process it lives in."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from starlette.datastructures import State

from batch.files import FileStore
from batch.queue import Queue
from batch.webhooks.sender import Sender
from engine_adapter.client.base import EngineClient
from engine_adapter.client.pool import EnginePool
from gateway.dashboard.engines import EngineHistory
from gateway.dashboard.row_errors import RetryOutlook
from gateway.dashboard.session import LoginThrottle, SessionSigner
from gateway.limits.at_once import RequestsAtOnce
from gateway.limits.endpoints import EndpointRates
from gateway.limits.limiter import RateLimiter
from gateway.limits.reached import WebhookProbeLimit
from gateway.prompts.serving import PromptParts
from gateway.replica import Readings
from gateway.settings import GatewaySettings
from gateway.storage_watch import StorageWatch
from service.clock import Clock, SystemClock
from store.session import Database

BROKER_S: Final = 1.0


@dataclass
class Resources:
    """The gateway's own resources, read when needed: they are made after this, in its lifespan.

    Attributes:
        state: The gateway's `app.state`.
        signer: Seals sessions.
        throttle: Slows guessing down.
        history: Samples of the engines for the charts.
        clock: For session ages and pacing.
        outlooks: What a retry of batches that are over would run, by batch id.
    """

    state: State
    signer: SessionSigner
    throttle: LoginThrottle = field(default_factory=LoginThrottle)
    history: EngineHistory = field(default_factory=EngineHistory)
    clock: Clock = field(default_factory=SystemClock)
    outlooks: dict[str, RetryOutlook] = field(default_factory=dict)

    @property
    def settings(self) -> GatewaySettings:
        """What the operator of the host has set."""
        settings: GatewaySettings = self.state.settings
        return settings

    @property
    def database(self) -> Database:
        """The process's database handle."""
        database: Database = self.state.database
        return database

    @property
    def readings(self) -> Readings:
        """Where sums and lists are read, which may be some seconds old."""
        readings: Readings = self.state.readings
        return readings

    @property
    def full_places(self) -> list[str]:
        """Where writes fail for want of room."""
        watch: StorageWatch = self.state.storage
        return watch.full

    @property
    def file_store(self) -> FileStore:
        """Where the bytes of files are."""
        file_store: FileStore = self.state.file_store
        return file_store

    async def broker_answers(self) -> bool:
        """Whether Valkey does within a second."""
        asked = asyncio.ensure_future(self.state.broker.ping())
        # One that hangs ends by a limit of its own; its end is not waited for.
        await asyncio.wait({asked}, timeout=BROKER_S)
        asked.add_done_callback(lambda done: done.cancelled() or done.exception())
        return asked.done() and not asked.cancelled() and asked.exception() is None

    @property
    def queue(self) -> Queue:
        """How stages are asked for."""
        queue: Queue = self.state.queue
        return queue

    @property
    def sender(self) -> Sender:
        """What sends webhooks."""
        sender: Sender = self.state.sender
        return sender

    @property
    def webhook_probes(self) -> WebhookProbeLimit:
        """Counts looks for webhook receivers that found none."""
        looks: WebhookProbeLimit = self.state.webhook_probes
        return looks

    @property
    def limiter(self) -> RateLimiter:
        """Where limits a minute are kept."""
        limiter: RateLimiter = self.state.limiter
        return limiter

    @property
    def at_once(self) -> RequestsAtOnce:
        """Where requests in flight of limited projects are counted."""
        at_once: RequestsAtOnce = self.state.at_once
        return at_once

    @property
    def endpoint_rates(self) -> EndpointRates:
        """How often a project may ask."""
        rates: EndpointRates = self.state.endpoint_rates
        return rates

    @property
    def prompt_parts(self) -> PromptParts:
        """What a prompt is served with."""
        parts: PromptParts = self.state.prompt_parts
        return parts

    @property
    def engines(self) -> Sequence[EngineClient]:
        """Every engine that the gateway knows."""
        return tuple(self.engine_pool.clients)

    @property
    def engine_pool(self) -> EnginePool:
        """Those engines with what is known of them."""
        pool: EnginePool = self.state.engines
        return pool
