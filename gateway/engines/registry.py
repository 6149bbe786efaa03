"""The gateway's side of the engine registry: who is in the pool, and what is known of each.

Engines are those of ENGINE_URLS and those an operator registered (`coserve engine add`), read from
the database every `FOLLOW_S`; while it is away the pool stays as it is. A row whose address cannot
be read is left out and reported, and so are facts that the database does not take: neither takes
anything from the other engines.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from sqlalchemy.exc import SQLAlchemyError

from api.errors import EngineUnavailable
from engine_adapter.client.base import EngineFacts
from engine_adapter.client.engine_address import shown, why_unusable
from engine_adapter.client.engine_facts import remembered_facts
from engine_adapter.client.foreign_facts import ForeignTerms
from engine_adapter.client.http import FOREIGN, HttpEngineClient
from engine_adapter.client.pool import EnginePool
from engine_adapter.scheduling.policies.settings import Level
from service.loop_turns import LoopTurns
from store.failures import AWAY, is_refused
from store.repositories import engine as engines
from store.session import Database

FOLLOW_S = 1.0
NOTE_S = 1.0

logger = logging.getLogger(__name__)


class EngineRegistry:
    """Reads which engines there are; writes what they said about themselves.

    Attributes:
        unusable: Addresses of rows that are left out, because nothing can be sent there.
    """

    def __init__(
        self,
        database: Database,
        static: Sequence[str],
        terms: ForeignTerms = FOREIGN,
        turns: LoopTurns | None = None,
    ) -> None:
        self._database = database
        self._make_client = partial(HttpEngineClient, terms=terms, turns=turns)
        self._static = static
        self._noted: dict[str, EngineFacts] = {}
        self._levels: dict[str, Level] = {}
        self.unusable: frozenset[str] = frozenset()

    async def apply(self, pool: EnginePool) -> None:
        """Give the pool the members that the registry has now."""
        try:
            async with self._database.unit_of_work() as session:
                found = await engines.in_use(session, self._static)
            wanted = {one.url: one.draining for one in found}
            self._levels = {one.url: Level(one.level) for one in found if one.level in set(Level)}
        except AWAY:
            if pool.members:
                return
            # The gateway starts without its database and serves what its settings name.
            wanted = dict.fromkeys(self._static, False)
        await pool.follow(self._without_unusable(wanted), self._make_client)

    async def set_levels(self, pool: EnginePool) -> None:
        """Tell each engine that plans at another level than is wanted of it.

        One that starts anew begins with its own level, and is told again when it says so.
        """
        for member in pool.members:
            wanted = self._levels.get(member.url)
            told = member.facts.reported("level") if member.facts else None
            if wanted is None or not member.up or told in (None, wanted):
                continue
            with suppress(EngineUnavailable):  # it is asked again as soon as it answers
                if not await member.client.set_level(wanted):
                    logger.warning("the engine %s does not take a level", shown(member.url))

    def _without_unusable(self, wanted: dict[str, bool]) -> dict[str, bool]:
        reasons = {url: why for url in wanted if (why := why_unusable(url))}
        for url in reasons.keys() - self.unusable:
            logger.error(
                "the engine %s is left out: %s. Remove it with coserve engine remove.",
                shown(url),
                reasons[url],
            )
        self.unusable = frozenset(reasons)
        return {url: draining for url, draining in wanted.items() if url not in reasons}

    async def remembered(self) -> dict[str, EngineFacts]:
        """What engines said in an earlier life, by address."""
        try:
            async with self._database.unit_of_work() as session:
                return {
                    engine.url: remembered_facts(
                        engine.model, engine.context_tokens or 0, engine.facts
                    )
                    for engine in await engines.list_all(session)
                    if engine.model
                }
        except AWAY:
            # The gateway starts without its database and says so in /statusz.
            return {}

    async def note(self, url: str, facts: EngineFacts) -> None:
        """Write new facts at once, or with the next flush where that is not done in `NOTE_S`.

        Who reads of a model in the gateway's list may send a batch for it: it is validated by what
        the database knows.
        """
        self._noted[url] = facts
        # What the database does not do is told by the flush that follows: the engine serves.
        with suppress(TimeoutError, SQLAlchemyError):
            async with asyncio.timeout(NOTE_S):
                await self.flush()

    async def flush(self) -> None:
        """Write what was noted, each engine for itself.

        What cannot be written now is kept for the next time, what never can be is dropped.
        """
        for url, facts in list(self._noted.items()):
            try:
                await self._write(url, facts)
            except AWAY:
                return
            except SQLAlchemyError as error:
                if not is_refused(error):
                    raise
                logger.exception("what the engine %s says of itself is not stored", shown(url))
            if self._noted.get(url) is facts:
                del self._noted[url]

    async def _write(self, url: str, facts: EngineFacts) -> None:
        more = {
            "kv_tokens": facts.kv_tokens,
            "max_running": facts.max_running,
            "version": facts.version,
            "embeds": facts.embeds,
            "vocab_size": facts.vocab_size,
            "hidden_size": facts.hidden_size,
            "server": facts.server,
            "more_models": dict(facts.more_models),
        }
        async with self._database.unit_of_work() as session:
            await engines.saw(session, url, facts.model, facts.context_tokens, more)
