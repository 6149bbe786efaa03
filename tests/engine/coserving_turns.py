"""Prompts that cannot share a step with a chat, and prompts of which more is cached than expected.

``python coserving_turns.py OVERLAP POLICY``: scenarios on one scheduler, prints one JSON object.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine_adapter.scheduling.latency import PolynomialModel
from engine_adapter.scheduling.plan import FinishedStep, StepPlan
from engine_adapter.scheduling.policies.registry import create_policy
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.snapshot import Snapshot
from engine_adapter.scheduling.targets import Slo
from tests.engine.coserving_arrivals import GUESS
from tests.engine.scenario_steps import counters, flush, gained, report, stopped_layers
from tests.engine.scheduler_rig import Rig, prompt

POLICY = sys.argv[2]


class Watched:
    """A policy and what it planned and was told."""

    def __init__(self, stop_at: dict[int, int] | None = None) -> None:
        settings = PolicySettings(safepoint_interval_s=1e-4)
        self._policy = create_policy(POLICY, PolynomialModel(GUESS, GUESS, GUESS), settings)
        self._stop_at = stop_at
        self.turns: list[StepPlan] = []
        self.short_steps = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def plan(self, snapshot: Snapshot) -> StepPlan:
        plan: StepPlan = self._policy.plan(snapshot)
        if plan.prefill and "chat" in plan.parks:
            if self._stop_at is not None and not self.turns:
                self._stop_at[plan.step_id] = 3
            self.turns.append(plan)
        return plan

    def observe(self, step: FinishedStep) -> None:
        done = step.outcome.online_tokens + step.outcome.offline_tokens
        if step.outcome.stopped_at_layer is None:
            self.short_steps += done < step.plan.num_tokens
        self._policy.observe(step)


def turn_beside_chat(rig: Rig) -> dict[str, Any]:
    """A request with log-probabilities begins while a chat decodes; a stop throws its turn away."""
    rig.scheduler.execution.snapshots.slo = Slo(1.0, 0.5)

    def start_logprobs() -> None:
        request = rig.request("lp", prompt(52, 60), 24)
        request.return_logprob, request.top_logprobs_num = True, 3
        rig.scheduler.handle_generate_request(request)

    def found() -> tuple[list[int], list[float]]:
        values = rig.reqs["lp"].logprob.output_token_logprobs_val
        return rig.output("lp"), [round(value, 3) for value in values]

    flush(rig)
    rig.use(Watched())
    start_logprobs()
    rig.run()
    requests_alone = found()
    rig.submit("chat", prompt(53, 40), 150, priority=0)
    rig.run()
    chat_alone = rig.output("chat")
    flush(rig)

    policy = rig.use(Watched(rig.stop_at))
    chat_had: list[int] = []

    def script(rig: Rig) -> None:
        if rig.step == 5:
            start_logprobs()
        if rig.step == 6:
            rig.scheduler.execution.requests[
                "lp"
            ].request.arrival_at_s -= 60.0  # it has waited for a minute
        if rig.step > 6 and not chat_had and rig.reqs["lp"].output_ids:
            chat_had.append(len(rig.reqs["chat"].output_ids))

    before = counters(rig)
    rig.submit("chat", prompt(53, 40), 150, priority=0)
    rig.run(script)
    assert found() == requests_alone
    assert rig.output("chat") == chat_alone
    assert min(chat_had, default=150) < 30, chat_had
    assert len(policy.turns) == 2, policy.turns  # the one that was stopped, and another
    assert stopped_layers(before, counters(rig)) == [3]
    return {"chat_had": chat_had[0], **gained(before, counters(rig), "steps")}


def hits_grow(rig: Rig) -> dict[str, Any]:
    """Requests of one batch come together; each expects to compute the prefix they share."""
    flush(rig)
    policy = rig.use(Watched())
    head = prompt(5, 300)
    for i in range(24):
        rig.submit(f"o{i}", head + prompt(10 + i, 24), 2 + i)
    before = counters(rig)
    rig.run(limit=600)
    assert [len(rig.output(f"o{i}")) for i in range(24)] == [2 + i for i in range(24)]
    assert policy.short_steps <= 4, policy.short_steps
    return {"short_steps": policy.short_steps, **gained(before, counters(rig), "steps")}


if __name__ == "__main__":
    report([turn_beside_chat, hits_grow], Rig(overlap=sys.argv[1] == "1", slots=8))
