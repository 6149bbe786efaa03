"""What one request costs its key: reserved before, settled once, however it ends."""

from __future__ import annotations

from api.usage import TokenUsage
from gateway.auth.principal import Principal
from gateway.auth.usage import UsageRecorder
from gateway.limits.at_once import Place
from gateway.limits.limiter import RateLimiter, Reservation
from gateway.prompts.admission import Admitted


class Bill:
    """The account of one admitted request.

    Invariant: `settle` is called exactly once, after its engine calls have ended.
    """

    def __init__(
        self,
        admitted: Admitted,
        principal: Principal,
        reservation: Reservation,
        place: Place,
        *,
        usage: UsageRecorder,
        limiter: RateLimiter,
    ) -> None:
        self._admitted = admitted
        self._principal = principal
        self._reservation = reservation
        self._place = place
        self._usage = usage
        self._limiter = limiter

    @property
    def headers(self) -> dict[str, str]:
        """What the limits were when the request was let in (rows T-10, S-20)."""
        return self._reservation.headers

    def settle(self) -> None:
        """Record what engines served and give back what was reserved beyond it."""
        used: TokenUsage = self._admitted.used()
        self._usage.add(self._principal, self._admitted.model, self._admitted.request_class, used)
        self._limiter.settle(self._reservation, used.total_tokens)
        self._place.leave()
