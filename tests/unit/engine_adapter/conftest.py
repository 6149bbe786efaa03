"""Small worlds for policies: hand-made requests and resources, a model for mental arithmetic.

The model: a step takes 10 ms, plus 1 ms per token; nothing else. So 5 decode requests take 15 ms
and a chunk of 90 tokens takes 100 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from engine_adapter.scheduling.latency import Coefficients, PolynomialModel
from engine_adapter.scheduling.request import Phase, Request, RequestClass, pages_for
from engine_adapter.scheduling.roster import Roster
from engine_adapter.scheduling.snapshot import EngineLimits, Resources, Snapshot
from engine_adapter.scheduling.targets import Slo

ONE_MS_PER_TOKEN = Coefficients(
    k_token=0.001, k_attention=0.0, k_context=0.0, k_square=0.0, k_request=0.0, k_constant=0.010
)

DEFAULT_SLO = Slo(ttft_s=1.0, tbt_s=0.050)
AMPLE = Resources(
    page_tokens=16,
    host_page_tokens=16,
    total_pages=1000,
    free_pages=1000,
    host_total_pages=1000,
    host_free_pages=1000,
    total_slots=16,
    free_slots=16,
    reserved_slots=4,
    copy_pages_per_step=100,
)
ABLE = EngineLimits(
    max_chunk_tokens=512,
    prefill_safepoints=True,
    decode_safepoints=True,
    request_drop=True,
    cuts=True,
    num_layers=10,
)


@dataclass
class World:
    """A roster and the resources around it."""

    slo: Slo = DEFAULT_SLO
    resources: Resources = AMPLE
    limits: EngineLimits = ABLE
    now_s: float = 0.0
    step_id: int = 0
    roster: Roster = field(default_factory=Roster)

    def add(
        self,
        rid: str,
        request_class: RequestClass = RequestClass.OFFLINE,
        *,
        prompt: int = 100,
        phase: Phase = Phase.WAITING,
        computed: int | None = None,
        **fields: object,
    ) -> Request:
        """Add a request; one that decodes has its whole prompt computed unless told otherwise."""
        request = Request(rid, request_class, prompt_tokens=prompt, fill_tokens=prompt)
        for name, value in fields.items():
            setattr(request, name, value)
        holds_slot = phase in (Phase.PREFILL, Phase.DECODE, Phase.RESTORING)
        if not holds_slot:
            request.phase = phase
        self.roster.add(request)
        if holds_slot:
            self.roster.start(rid, phase)
            request.computed_tokens = prompt if computed is None else computed
            request.device_pages = pages_for(request.computed_tokens, self.resources.page_tokens)
        return request

    def online(self, rid: str, **kwargs: object) -> Request:
        return self.add(rid, RequestClass.ONLINE, **kwargs)  # type: ignore[arg-type]

    def offline(self, rid: str, **kwargs: object) -> Request:
        return self.add(rid, RequestClass.OFFLINE, **kwargs)  # type: ignore[arg-type]

    def have(self, **fields: object) -> None:
        """Change some of the resources."""
        self.resources = replace(self.resources, **fields)  # type: ignore[arg-type]

    def limit(self, **fields: object) -> None:
        """Change some of the executor's limits."""
        self.limits = replace(self.limits, **fields)  # type: ignore[arg-type]

    def snapshot(self) -> Snapshot:
        """The next snapshot; slots in use are counted, pages are as told."""
        self.step_id += 1
        used = self.roster.num_running
        resources = replace(
            self.resources,
            free_slots=min(self.resources.free_slots, self.resources.total_slots - used),
        )
        return self.roster.snapshot(self.step_id, self.now_s, self.slo, resources, self.limits)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def make_world() -> Callable[..., World]:
    return World


@pytest.fixture
def model() -> PolynomialModel:
    return PolynomialModel(ONE_MS_PER_TOKEN, ONE_MS_PER_TOKEN, ONE_MS_PER_TOKEN)
