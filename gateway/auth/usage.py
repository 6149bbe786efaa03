"""What principals used, added up in memory and written every second.

A transaction per request would cost more than the relay itself. What was not yet written when the
process is killed is lost: at most one period of the loop in `gateway.lifespan`, or what came since
the database went away. A write has a number: repeated because the answer to its COMMIT was lost,
it finds that it was applied, and adds nothing.
"""

from __future__ import annotations

import logging
from functools import partial

from prometheus_client import Counter

from api.usage import TokenUsage
from engine_adapter.client.request_class import class_label
from engine_adapter.scheduling.request import RequestClass
from gateway.auth.principal import Principal
from gateway.observability.metrics import Metrics
from store.failures import AWAY
from store.repositories import receipt as receipts
from store.repositories import usage as usages
from store.repositories.usage import UsageCount, UsageKey
from store.session import Database
from store.types import new_id

logger = logging.getLogger(__name__)


class UsageRecorder:
    """Counters of this process since the last flush.

    Invariant: a count is pending, or in the write that is tried under the newest number until it
    is known to be applied, or written.
    """

    def __init__(self, database: Database, metrics: Metrics) -> None:
        self._database = database
        self._metrics = metrics
        self._writer = new_id("usage_")
        self._number = 0
        self._writing: dict[UsageKey, UsageCount] = {}
        self._pending: dict[UsageKey, UsageCount] = {}
        self._series: dict[tuple[str, str], tuple[Counter, Counter, Counter]] = {}

    def add(
        self, principal: Principal, model: str, request_class: RequestClass, used: TokenUsage
    ) -> None:
        """Count one request, cut ones too."""
        word = class_label(request_class)
        self._put(
            UsageKey(principal.project_id, principal.key_id, model, word),
            UsageCount(1, used.prompt_tokens, used.cached_tokens, used.completion_tokens),
        )
        prompt, cached, completion = self._series_of(model, word)
        prompt.inc(used.prompt_tokens)
        cached.inc(used.cached_tokens)
        completion.inc(used.completion_tokens)

    def _series_of(self, model: str, word: str) -> tuple[Counter, Counter, Counter]:
        """As many as there are in the registry: looking them up there is dearer."""
        known = self._series.get((model, word))
        if known is None:
            labels = partial(self._metrics.tokens.labels, model, word)
            known = labels("prompt"), labels("cached"), labels("completion")
            self._series[model, word] = known
        return known

    async def flush(self) -> bool:
        """Write what is pending; whether that worked. What could not be written is tried again."""
        if self._writing and not await self._write():
            return False
        if not self._pending:
            return True
        self._writing, self._pending = self._pending, {}
        self._number += 1
        return await self._write()

    async def _write(self) -> bool:
        """Try the newest write, for the first time or again."""
        try:
            async with self._database.unit_of_work() as session:
                if await receipts.take(session, self._writer, self._number):
                    await usages.add(session, self._writing)
        except AWAY as error:
            logger.warning("usage not written, will be repeated: %s", type(error).__name__)
            self._metrics.usage_flush_failures.inc()
            return False
        self._writing = {}
        return True

    def _put(self, key: UsageKey, count: UsageCount) -> None:
        known = self._pending.get(key)
        self._pending[key] = count if known is None else known + count
