"""Where a request goes when the engine it was sent to is gone.

never reached its engine     elsewhere, as long as there is one
lost before its first token  elsewhere once, if `COSERVE_RETRY_ON_ENGINE_LOSS`
lost after it                nowhere: the caller has a part of one answer
lost, as its like before     nowhere: it may be what ends engines (gateway/prompts/quarantine.py)
timed out                    nowhere: the engine may be slow everywhere
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from api.errors import EngineNotReached, EngineUnavailable
from engine_adapter.client.base import EngineClient
from engine_adapter.client.pool import EnginePool, Route
from engine_adapter.scheduling.request import RequestClass
from gateway.engines.chat_pressure import ChatPressure, OpenChat
from gateway.prompts.prompt import Prompt
from gateway.prompts.quarantine import Quarantine, is_loss

T = TypeVar("T")


class Failover:
    """The routes of one request, one after the other.

    Attributes:
        route: The current one.
        chat: Where chat at an engine that is not ours is measured; none at one of ours.
        begun: Set by who relays: something of an answer has come.
    """

    def __init__(
        self,
        engines: EnginePool,
        prompt: Prompt,
        quarantine: Quarantine,
        pressure: ChatPressure,
        *,
        may_retry: bool,
    ) -> None:
        self.route: Route = prompt.route
        self.begun = False
        self.chat: OpenChat | None = None
        self._pressure = pressure
        self._engines = engines
        self._prompt = prompt
        self._quarantine = quarantine
        self._may_retry = may_retry
        self._sent_at_s = time.monotonic()

    async def run(self, attempt: Callable[[EngineClient], Awaitable[T]]) -> T:
        """Make the attempt with one engine after another until one does not lose it.

        Raises:
            EngineUnavailable: See `go_on`, as for the other.
            RequestQuarantined: The same.
        """
        while True:
            try:
                with self._engines.using(self.route) as client, self._open_chat():
                    return await attempt(client)
            except EngineUnavailable as error:
                await self.go_on(error)

    @contextmanager
    def _open_chat(self) -> Iterator[None]:
        """Measure what chat gets, where rows of batches have no other measure."""
        facts = self.route.member.facts
        self.chat = None
        if (
            facts is None
            or facts.targets_s is None
            or self._prompt.request_class is not RequestClass.ONLINE
        ):
            yield
            return
        url = self.route.member.url
        self.chat = self._pressure.begin(url, facts.targets_s, stream=self._prompt.stream)
        try:
            yield
        finally:
            self.chat.end()

    async def end(self) -> None:
        """An engine has answered."""
        await self._quarantine.note_answered(self._prompt)

    async def go_on(self, error: EngineUnavailable) -> None:
        """Choose another route after an error.

        Raises:
            EngineUnavailable: It ends here: the same error, or there is no other engine.
            RequestQuarantined: It ends here, as engines were lost with its like before.
        """
        gone = not self.route.member.open  # it may be back before the loss is written
        if is_loss(error):
            url = self.route.member.url
            await self._quarantine.note_lost(self._prompt, url, self._sent_at_s)
        if self.begun or not gone or isinstance(error.__cause__, TimeoutError):
            raise error
        if not isinstance(error, EngineNotReached):
            if not self._may_retry or error.__cause__ is None:
                raise error
            self._may_retry = False
        prompt = self._prompt
        try:
            self.route = self._engines.pick(prompt.model, prompt.path, prompt.beginning)
        except EngineUnavailable:
            raise error from error.__cause__
        self._sent_at_s = time.monotonic()
