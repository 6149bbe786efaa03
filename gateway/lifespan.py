"""What lives as long as the gateway: made in order at the start, closed in reverse at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

from fastapi import FastAPI
from starlette.datastructures import State

from batch.files import make_file_store
from batch.queue import SEND_LIMIT_S, CeleryQueue
from batch.storage import DATABASE
from batch.webhooks.names import ReceiverNames
from batch.webhooks.sender import Sender
from batch.worker.app import make_app as make_celery
from engine_adapter.client.pool import EnginePool
from engine_adapter.client.routed import RoutedEngineClient
from gateway.auth.keys import KeyRing
from gateway.auth.usage import UsageRecorder
from gateway.engines.chat_pressure import REPORT_S, ChatPressure
from gateway.engines.discovery import POLL_INTERVAL_S as DISCOVERY_S
from gateway.engines.discovery import EngineDiscovery, KubernetesApi
from gateway.engines.registry import FOLLOW_S, EngineRegistry
from gateway.followers import Followers
from gateway.history.recorder import PERIOD_S, HistoryRecorder
from gateway.http.parsing import Parsing
from gateway.http.per_address_limits import UnknownKeyLimiter
from gateway.limits.at_once import RequestsAtOnce
from gateway.limits.database_shares import DatabaseShares
from gateway.limits.endpoints import EndpointRates
from gateway.limits.limiter import RateLimiter
from gateway.limits.prepaid import PrepaidBuckets
from gateway.limits.reached import WebhookProbeLimit
from gateway.limits.valkey import ValkeyBuckets, make_limiter
from gateway.observability.metrics import Metrics
from gateway.prompts.admission import AdmissionControl
from gateway.prompts.quarantine import POLL_INTERVAL_S as QUARANTINE_S
from gateway.prompts.quarantine import Quarantine
from gateway.prompts.serving import PromptParts
from gateway.replica import POLL_INTERVAL_S as REPLICA_S
from gateway.replica import Readings
from gateway.settings import GatewaySettings
from gateway.storage_watch import POLL_INTERVAL_S as STORAGE_S
from gateway.storage_watch import StorageWatch
from gateway.verdict.reading import Verdicts
from service.clock import SystemClock
from service.garbage import QuietCollector
from service.loops import Loops
from store.bounded_connection import ANSWER_LIMIT_S
from store.repositories import batch as batches
from store.repositories import response as responses
from store.session import Database

_BROKER_PROBE_S = 2.0
_ABORTS_S = 2.5
_FIRST_POLL_INTERVAL_S = 2.0
FLUSH_S = 1.0
_COLLECT_S = 30.0


def _database(url: str, settings: GatewaySettings) -> Database:
    database = Database(
        url,
        pool_size=settings.database_pool,
        max_overflow=settings.database_overflow,
        prepares=settings.database_prepares,
        limit_s=ANSWER_LIMIT_S,
    )
    num_connections = settings.database_pool + settings.database_overflow
    database.place = DatabaseShares(num_connections, ANSWER_LIMIT_S / 2).place
    return database


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Put the resources on `app.state` (see `gateway.dependencies`)."""
    settings: GatewaySettings = app.state.settings
    metrics: Metrics = app.state.metrics
    async with AsyncExitStack() as stack:
        database = _database(settings.database_url, settings)
        stack.push_async_callback(database.dispose)
        replica = None
        if settings.database_replica_url:
            replica = _database(settings.database_replica_url, settings)
            stack.push_async_callback(replica.dispose)
        broker = settings.broker.client(
            socket_timeout=_BROKER_PROBE_S, socket_connect_timeout=_BROKER_PROBE_S
        )
        stack.push_async_callback(broker.aclose)
        buckets = ValkeyBuckets(settings.broker)
        stack.push_async_callback(buckets.close)
        at_once = RequestsAtOnce(settings.broker, metrics)
        stack.push_async_callback(at_once.close)
        registry = EngineRegistry(
            database, settings.engines, settings.foreign, app.state.loop_turns
        )
        pool = EnginePool(seen=registry.note, aliases=settings.aliases)
        if url := settings.chat_router_url:
            pool.use_router(lambda: RoutedEngineClient(url, lambda: pool.clients, pool.facts_of))
        stack.push_async_callback(pool.close)
        pool.remember(await registry.remembered())
        await registry.apply(pool)
        if settings.engine_selector:
            api = KubernetesApi(settings.engine_selector)
            stack.push_async_callback(api.close)
            discovery = EngineDiscovery(api, database)
        usage = UsageRecorder(database, metrics)
        limiter = make_limiter(PrepaidBuckets(buckets), settings, metrics)
        # Its threads are free again before their callers have given up.
        celery = make_celery(settings, answer_s=0.8 * SEND_LIMIT_S, connect_s=0.8 * SEND_LIMIT_S)
        stack.callback(celery.close)

        app.state.polls = {}
        app.state.database = database
        app.state.broker = broker
        app.state.engines = pool
        app.state.registry = registry
        app.state.usage = usage
        keys = app.state.keys = KeyRing(
            database,
            unknown=UnknownKeyLimiter(settings.unknown_keys_per_minute),
            stale_s=settings.key_grace_s,
        )
        stack.push_async_callback(keys.close)
        app.state.file_store = make_file_store(settings)
        app.state.queue = CeleryQueue(celery)
        clock = app.state.clock = SystemClock()
        readings = app.state.readings = Readings(database, replica, clock)
        followers = app.state.followers = Followers(
            database, clock, responses.states, "background responses"
        )
        stack.push_async_callback(followers.close)
        feeds = app.state.feeds = Followers[None](
            database, clock, batches.result_states, "results of batches"
        )
        stack.push_async_callback(feeds.close)
        names = ReceiverNames(settings.webhook_servers)
        stack.push_async_callback(names.close)
        app.state.sender = Sender(settings.webhook_targets, clock, names)
        app.state.limiter, app.state.at_once = limiter, at_once
        quarantine = Quarantine(database)
        admission = AdmissionControl(
            pool,
            metrics,
            usage,
            limiter,
            at_once,
            max_in_flight=settings.max_in_flight,
            bytes_per_minute=settings.project_bytes_per_minute,
        )
        parsing = Parsing()
        app.state.endpoint_rates = EndpointRates(limiter, settings.endpoint_rates)
        stack.callback(parsing.close)
        app.state.webhook_probes = WebhookProbeLimit(limiter)
        app.state.prompt_parts = PromptParts(
            settings, admission, metrics, clock, pool, parsing, keys, quarantine,
            settings.alias_tiers,
        )  # fmt: skip

        storage = app.state.storage = StorageWatch(database, clock)
        database.met_full = partial(storage.note, DATABASE)

        app.state.history = HistoryRecorder(
            database, metrics.latency, lambda: pool.members, clock, metrics.http_requests
        )
        app.state.verdicts = Verdicts(app.state)
        async with Loops(lambda loop, num: metrics.loop_failures.labels(loop).inc(num)) as loops:
            app.state.loops = loops
            pool.watch(loops)
            loops.forever("engine_list", partial(registry.apply, pool), every_s=FOLLOW_S)
            loops.forever("engine_levels", partial(registry.set_levels, pool), every_s=FOLLOW_S)
            loops.forever("quarantine", quarantine.poll, every_s=QUARANTINE_S)
            _begin_loops(loops, app.state)
            garbage = QuietCollector(admission.idle.is_set)
            loops.forever("garbage", garbage.poll, every_s=_COLLECT_S)
            if replica is not None:
                loops.forever("replica", readings.poll, every_s=REPLICA_S)
            if settings.engine_selector:
                loops.forever("discovery", discovery.follow, every_s=DISCOVERY_S)
            try:
                async with AsyncExitStack() as told:
                    if metrics.siblings is not None:
                        await told.enter_async_context(metrics.siblings.answering())
                    await _until_asked(pool)  # its port is open from here on
                    yield
            finally:
                # The server cancels what outlives its grace and goes on at once; the engine
                # must still be told.
                await admission.drained(_ABORTS_S)


def _begin_loops(loops: Loops, state: State) -> None:
    """The loops that every gateway has; what stays down makes it not ready (`service.loops`)."""
    usage: UsageRecorder = state.usage
    registry: EngineRegistry = state.registry
    keys: KeyRing = state.keys
    limiter: RateLimiter = state.limiter
    at_once: RequestsAtOnce = state.at_once
    storage: StorageWatch = state.storage
    history: HistoryRecorder = state.history

    chat: ChatPressure = state.metrics.chat
    loops.until(
        "chat_reports", partial(chat.report, state.database), every_s=REPORT_S, due=chat.due
    )

    async def write_history() -> None:
        await history.write(last=loops.stopping.is_set())

    loops.forever("storage", storage.poll, every_s=STORAGE_S)
    loops.until("limits", limiter.flush_gathered, every_s=None, due=limiter.due)
    loops.until("requests_at_once", at_once.tell, every_s=at_once.beat_s, due=at_once.due)
    loops.until("usage", usage.flush, every_s=FLUSH_S)
    loops.until("engine_facts", registry.flush, every_s=FLUSH_S)
    loops.until("revoked_keys", keys.end_revoked, every_s=FLUSH_S)
    loops.until("key_uses", keys.note_uses, every_s=FLUSH_S)
    loops.until("history", write_history, every_s=PERIOD_S)


async def _until_asked(pool: EnginePool) -> None:
    """A process that takes the place of another finds its engines before it gets requests.

    One that does not answer is not waited for: the first requests say so.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(_FIRST_POLL_INTERVAL_S):
            while not pool.asked:  # noqa: ASYNC110 - true of several members
                await asyncio.sleep(_FIRST_POLL_INTERVAL_S / 100)
