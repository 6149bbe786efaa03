"""The engines of this service: which models they serve, which of them answer, which to use next.

Members come and go with the registry (`follow`). One that is draining gets no new call; one that
has left is closed when its last call has ended.

A member is up or down. Down after a refused or lost connection or a failed probe (ejection), up
again after a good one (return): a down engine is asked every `PROBE_DOWN_S`, an up one every
`PROBE_UP_S`. What an engine serves is remembered while it is down, so that the list of models does
not depend on it (row M-06).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from api.errors import EngineBusy, EngineUnavailable
from api.model_errors import unknown_model, unsuited_model
from api.numbers import UNKNOWN, ModelSizes
from engine_adapter.client.absence import Absence
from engine_adapter.client.base import CHAT_PATH, EMBEDDINGS_PATH, EngineClient, EngineFacts
from engine_adapter.client.request_class import RequestClass, class_label
from engine_adapter.client.routing import PrefixRouting, Prompt
from engine_adapter.coserving_levels import FULL_LEVEL
from service.loops import Loops

PROBE_UP_S = 5.0
PROBE_DOWN_S = 0.5
NOT_UNDERSTOOD = "It answers what the gateway does not understand; the gateway's log has the error."
SLOW_PROBES = 3
"""Probes in a row that may come to nothing, by an engine that is busy, before it counts as down."""

Seen = Callable[[str, EngineFacts], Awaitable[None]]
"""Called with an engine's address and facts when they are new, before the pool goes by them."""


@dataclass
class Member:
    """One engine of the pool."""

    client: EngineClient
    facts: EngineFacts | None = None
    up: bool = False
    draining: bool = False
    in_flight: int = 0
    others: int = 0
    """Calls of other gateways, as it last said."""
    waiting_tokens: int = 0
    """Prompt tokens of our calls that have no token yet."""
    last_pick: int = 0
    why: str = "not asked yet"
    asked: bool = False
    num_slow: int = 0
    absence: Absence = field(default_factory=Absence)
    busy: bool = False
    """Its last probe came to nothing because it is busy."""
    ejected: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a call found the engine gone: it is probed again at once, and not in a while."""

    @property
    def url(self) -> str:
        """The engine's address."""
        return self.client.url

    @property
    def open(self) -> bool:
        """Whether new calls may be sent there."""
        return self.up and not self.draining

    @property
    def num_calls(self) -> int:
        """Calls that are open there, as far as is known."""
        return self.in_flight + self.others

    @property
    def cache_tokens(self) -> int:
        """Tokens its KV cache holds; 0 where it does not say."""
        return self.facts.kv_tokens if self.facts else 0


@dataclass
class Route:
    """Where one request goes.

    Attributes:
        member: The engine.
        new_tokens: Tokens of its prompt that are probably not cached there.
    """

    member: Member
    new_tokens: int = 0

    def note_token(self) -> None:
        """Its first token has come: its prompt waits no more."""
        self.member.waiting_tokens -= self.new_tokens
        self.new_tokens = 0


@dataclass(frozen=True)
class ModelInfo:
    """One served model.

    Attributes:
        level: How chat and batches share its engines (`EngineFacts.level`); of several, the lowest.
        level_reasons: Why there is no higher one.
        unsigned: The release of SGLang that serves it, if nobody has tried that one; else empty.
    """

    id: str
    context_tokens: int
    up: bool
    embeds: bool = False
    level: int = FULL_LEVEL
    level_reasons: Mapping[int, str] = field(default_factory=dict)
    unsigned: str = ""

    def told(self) -> dict[str, Any]:
        """Its level, as answers have it, and a release of SGLang that nobody has tried."""
        reasons = {str(level): why for level, why in self.level_reasons.items()}
        told = {"coserving_level": self.level, "coserving_reasons": reasons}
        return told | ({"coserving_engine": f"SGLang {self.unsigned}"} if self.unsigned else {})


class EnginePool:
    """A set of engines; `watch` keeps their state fresh.

    Attributes:
        members: The engines in use, draining ones included.
    """

    def __init__(
        self,
        clients: Sequence[EngineClient] = (),
        *,
        seen: Seen | None = None,
        aliases: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.members = [Member(client) for client in clients]
        self._seen = seen
        self._aliases = dict(aliases or {})
        self._routing = PrefixRouting()
        self._router: Member | None = None
        self._known: dict[str, EngineFacts] = {}
        self._leaving: list[Member] = []
        self._num_picks = 0
        self._loops: Loops | None = None
        self._watchers: dict[str, asyncio.Task[None]] = {}

    @property
    def clients(self) -> tuple[EngineClient, ...]:
        """The client of every engine in use."""
        return tuple(member.client for member in self.members)

    @property
    def open_urls(self) -> list[str]:
        """The engines that are not draining, whether they answer or not."""
        return [member.url for member in self.members if not member.draining]

    @property
    def asked(self) -> bool:
        """True once one engine is up or every engine was probed (refusals and time-outs count)."""
        return any(one.up for one in self.members) or all(one.asked for one in self.members)

    async def follow(
        self, wanted: Mapping[str, bool], make_client: Callable[[str], EngineClient]
    ) -> None:
        """Have these members and no others.

        Args:
            wanted: Whether an engine is draining, by address, in the order of the list of models.
            make_client: Makes the client of an address that is new.
        """
        present = {member.url: member for member in self.members}
        for url in present.keys() - wanted.keys():
            self._leaving.append(present.pop(url))
            self._routing.forget(url)
            watcher = self._watchers.pop(url, None)
            if watcher is not None:
                watcher.cancel()
        for url in wanted.keys() - present.keys():
            present[url] = Member(make_client(url), facts=self._known.get(url))
            self._watch_in_background(present[url])
        for url, draining in wanted.items():
            present[url].draining = draining
        self.members = [present[url] for url in wanted]
        for member in [one for one in self._leaving if not one.in_flight]:
            self._leaving.remove(member)
            await member.client.close()

    def remember(self, known: Mapping[str, EngineFacts]) -> None:
        """Facts from an earlier life, by address: what is served is known before any probe."""
        self._known.update(known)
        for member in self.members:
            if member.facts is None:
                member.facts = known.get(member.url)

    @property
    def routes_by_prompt(self) -> bool:
        """Whether there is a choice of engines, so that `pick` looks at prompts."""
        return len(self.members) > 1

    def models(self) -> list[ModelInfo]:
        """Every model known to be served, in the engines' order, then the aliases of such."""
        found: dict[str, ModelInfo] = {}
        for member in self.members:
            facts = member.facts
            if facts is None:
                continue
            for name, context_tokens in facts.models.items():
                known = found.get(name)
                least = facts if known is None or facts.level <= known.level else known
                found[name] = ModelInfo(
                    name,
                    context_tokens,
                    member.open or (known is not None and known.up),
                    facts.embeds,
                    least.level,
                    least.level_reasons,
                    facts.unsigned or (known.unsigned if known else ""),
                )
        for alias, wanted in self._aliases.items():
            if known := _preferred(found, wanted):
                found[alias] = replace(known, id=alias)
        return list(found.values())

    def resolve(self, name: str) -> str:
        """The model that a name stands for now: an alias' first that answers, else itself."""
        if name not in self._aliases:
            return name
        found = {info.id: info for info in self.models() if info.id not in self._aliases}
        known = _preferred(found, self._aliases[name])
        return known.id if known else name

    def model(self, model_id: str) -> ModelInfo:
        """One model.

        Raises:
            ModelNotFound: No engine is known to serve it.
        """
        for info in self.models():
            if info.id == model_id:
                return info
        raise unknown_model(model_id)

    def use_router(self, make_client: Callable[[], EngineClient]) -> None:
        """Have online generation go through a router of somebody else's, while that answers."""
        self._router = Member(make_client(), up=True)

    def facts_of(self, model_id: str) -> EngineFacts | None:
        """What the first engine of a model says."""
        facts = (member.facts for member in self.members)
        return next((one for one in facts if one and one.serves(model_id)), None)

    def sizes_of(self, model_id: str) -> ModelSizes:
        """The sizes of a model, as far as an engine of it says."""
        facts = self.facts_of(model_id)
        return facts.sizes_of(model_id) if facts else UNKNOWN

    def pick(
        self,
        model_id: str,
        path: str = CHAT_PATH,
        prompt: Prompt | None = None,
        *,
        online: bool = False,
    ) -> Route:
        """Where to send a request for a model next.

        Generation goes by what is cached and by load (`client.routing`), all else to the least
        busy engine.

        Args:
            model_id: The model.
            path: Of the request.
            prompt: What routing looks at; none: load alone decides.
            online: It may go through a router.

        Raises:
            ModelNotFound: No engine is known to serve it.
            InvalidRequest: It is served, but not at this path.
            EngineUnavailable: None of those that serve it answers, or nothing is known yet.
        """
        if not any(member.facts for member in self.members):
            raise _away("No engine has answered yet.", self.members)
        known = self.facts_of(model_id) or self.model(model_id)
        if known.embeds != (path == EMBEDDINGS_PATH):
            raise unsuited_model(model_id, embeds=known.embeds)
        able = [m for m in self.members if m.open and m.facts and m.facts.serves(model_id)]
        if not able:
            raise self._none(model_id)
        if online and path != EMBEDDINGS_PATH and self._router is not None and self._router.up:
            self._router.facts = able[0].facts
            return Route(self._router)
        if len(able) == 1:
            return Route(able[0])
        if prompt is not None and path != EMBEDDINGS_PATH:
            return Route(*self._routing.choose(able, prompt))
        # A call counts from when it begins: those picked in one moment must not all meet.
        chosen = min(able, key=lambda member: (member.in_flight, member.last_pick))
        self._num_picks += 1
        chosen.last_pick = self._num_picks
        return Route(chosen)

    def _none(self, model_id: str) -> EngineUnavailable:
        serving = [m for m in self.members if m.facts and m.facts.serves(model_id)]
        if any(member.up for member in serving):
            return EngineUnavailable("The engine that serves this model is being drained.")
        if any(member.busy for member in serving):
            return EngineUnavailable("The engine that serves this model is busy at the moment.")
        return _away("The engine that serves this model cannot be reached.", serving)

    @contextmanager
    def using(self, route: Route) -> Iterator[EngineClient]:
        """Count a call, and eject the engine if the call finds it gone."""
        member = route.member
        member.in_flight += 1
        member.waiting_tokens += route.new_tokens
        try:
            yield member.client
        except EngineUnavailable as error:
            if error.__cause__ is not None and not isinstance(error.__cause__, TimeoutError):
                self._eject(member, error)
                error.headers["retry-after"] = self._wait_after(member)
            raise
        finally:
            member.in_flight -= 1
            route.note_token()

    def watch(self, loops: Loops) -> None:
        """Probe every engine, those that come later too, each in a loop of its own."""
        self._loops = loops
        for member in self.members:
            self._watch_in_background(member)
        if self._router is not None:
            loops.forever("router", partial(self._try_again, self._router), vital=False)

    def _wait_after(self, lost: Member) -> str:
        """How many seconds to wait after an engine was lost: few where another serves the same."""
        model = lost.facts.model if lost.facts else ""
        if any(one.open and one.facts and one.facts.serves(model) for one in self.members):
            return "1"
        return str(lost.absence.wait_s(time.monotonic()))

    async def probe(self) -> None:
        for member in self.members:
            await self._probe(member)

    async def close(self) -> None:
        for member in [*self.members, *self._leaving, *filter(None, [self._router])]:
            await member.client.close()

    @staticmethod
    async def _try_again(router: Member) -> None:
        """A router that was lost is left out for a while: engines are asked without it."""
        await router.ejected.wait()
        await asyncio.sleep(PROBE_UP_S)
        router.ejected.clear()
        router.up = True

    def _watch_in_background(self, member: Member) -> None:
        if self._loops is not None:
            # While one cannot be watched its engine is not used; the others serve.
            turn = partial(self._watch, member)
            self._watchers[member.url] = self._loops.forever("engine", turn, vital=False)

    async def _watch(self, member: Member) -> None:
        try:
            await self._probe(member)
        except Exception:
            member.asked = True
            self._eject(member, EngineUnavailable(NOT_UNDERSTOOD))
            raise
        if not member.up:
            await asyncio.sleep(PROBE_DOWN_S)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(PROBE_UP_S):
                await member.ejected.wait()
            await asyncio.sleep(PROBE_DOWN_S)

    async def _probe(self, member: Member) -> None:
        try:
            facts = await member.client.facts()
        except EngineUnavailable as error:
            # A scheduler in the middle of a long step answers late; only a gone one refuses.
            is_slow = isinstance(error, EngineBusy) or isinstance(error.__cause__, TimeoutError)
            member.busy = isinstance(error, EngineBusy)
            member.num_slow = member.num_slow + 1 if is_slow else 0
            if not is_slow or member.num_slow >= SLOW_PROBES:
                member.asked = True
                self._eject(member, error)
            return
        member.asked = True
        if not facts.usable:
            self._eject(member, EngineUnavailable(no_plugin(member.url)))
            return
        known = member.facts
        served = (facts.models, facts.embeds, facts.sizes)
        was = known and (known.models, known.embeds, known.sizes)
        changed = facts.model and served != was
        if changed and self._seen is not None:
            await self._seen(member.url, facts)
        member.facts, member.up, member.why = facts, bool(facts.model), ""
        member.others = max(0, _num_online(facts) - member.in_flight)
        member.num_slow, member.busy = 0, False
        member.absence.end(time.monotonic())
        member.ejected.clear()

    def _eject(self, member: Member, error: EngineUnavailable) -> None:
        member.up = False
        member.absence.begin(time.monotonic())
        self._routing.forget(member.url)  # it comes back with an empty cache
        member.why = error.message
        member.ejected.set()


def _away(what: str, members: Iterable[Member]) -> EngineUnavailable:
    """The error while none of these answers, and when the first of them is expected."""
    now_s = time.monotonic()
    wait_s = min((one.absence.wait_s(now_s) for one in members if not one.draining), default=5)
    return EngineUnavailable(
        f"{what} One is expected in about {wait_s} s.", headers={"retry-after": str(wait_s)}
    )


def no_plugin(url: str) -> str:
    """Why an engine that answers is not used."""
    return (
        f"The engine at {url} runs without coserve's scheduler plugin: "
        "set its environment up again (coserve engine install). "
        "If it is meant to, name it in COSERVE_FOREIGN_ENGINES."
    )


def _preferred(found: Mapping[str, ModelInfo], wanted: Sequence[str]) -> ModelInfo | None:
    """Of what an alias stands for: the first that answers, else the first that is known."""
    known = [found[model] for model in wanted if model in found]
    return next((info for info in known if info.up), known[0] if known else None)


def _num_online(facts: EngineFacts) -> int:
    """Requests that an engine has, without rows of batches."""
    classes = facts.reported("live.classes")
    if not isinstance(classes, Mapping):
        return 0
    return sum(word != class_label(RequestClass.OFFLINE) for word in classes.values())
