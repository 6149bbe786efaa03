"""Where a request goes when the engine it was sent to is gone (decision 0186).

never reached its engine     elsewhere, as long as there is one
lost before its first token  elsewhere once, if `COSERVE_RETRY_LOST`
lost after it                nowhere: the caller has a part of one answer
timed out                    nowhere: the engine may be slow everywhere
"""

from __future__ import annotations

from api.errors import EngineNotReached, EngineUnavailable
from engine_adapter.client.pool import EnginePool, Route
from gateway.prompts.admission import Admitted


class Failover:
    """The routes of one request, one after the other.

    Attributes:
        route: The current one.
        begun: Set by who relays: something of an answer has come.
    """

    def __init__(self, engines: EnginePool, admitted: Admitted, *, retry_lost: bool) -> None:
        self.route: Route = admitted.route
        self.begun = False
        self._engines = engines
        self._admitted = admitted
        self._may_retry = retry_lost

    def go_on(self, error: EngineUnavailable) -> None:
        """Choose another route after an error.

        Raises:
            EngineUnavailable: It ends here: the same error, or there is no other engine.
        """
        if self.begun or self.route.member.open or isinstance(error.__cause__, TimeoutError):
            raise error
        if not isinstance(error, EngineNotReached):
            if not self._may_retry or error.__cause__ is None:
                raise error
            self._may_retry = False
        admitted = self._admitted
        try:
            body = admitted.choices[0].call.body
            self.route = self._engines.pick(admitted.model, admitted.path, body)
        except EngineUnavailable:
            raise error from error.__cause__
