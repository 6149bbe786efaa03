"""The scheduler that runs in SGLang's scheduler processes: co-serving, or SGLang's own choice.

``COSERVE_POLICY`` decides when the process starts. With ``off`` SGLang schedules and the class
only reports; otherwise :class:`~engine_adapter.sglang.coserving.CoServingScheduler` plans
every step.
"""

from __future__ import annotations

import time
from typing import Any

import sglang
from sglang.srt.managers.scheduler import Scheduler

from engine_adapter.coserving_levels import Coserving, found
from engine_adapter.runtime_settings import OFF
from engine_adapter.sglang.contract import is_signed
from engine_adapter.sglang.numbers import end_alone
from engine_adapter.sglang.report import live_ids

GRAMMAR_POLL_S = 0.002


class ReportingScheduler(Scheduler):
    """SGLang's scheduler, reporting what the service has to know.

    Attributes:
        coserving: What of co-serving is done here.
    """

    coserving: Coserving = Coserving((found("policy"),))

    def maybe_sleep_on_idle(self) -> None:
        """Sleep while idle, but not while a grammar is being compiled.

        SGLang sleeps for up to a second then: the grammar comes from a thread, not from a socket
        that would wake the scheduler, and the first token of structured output comes that late.
        """
        if self.grammar_manager.has_waiting_grammars():
            time.sleep(GRAMMAR_POLL_S)
            return
        super().maybe_sleep_on_idle()

    def _add_request_to_queue(self, req: Any, is_retracted: bool = False) -> None:
        """Let a request wait; one that would end the engine is answered with an error."""
        if not is_retracted:
            end_alone(req, self.model_config.vocab_size)
        super()._add_request_to_queue(req, is_retracted)

    def get_internal_state(self, recv_req: Any) -> Any:
        """SGLang's state and, under `coserve`, ours: `/server_info` -> `internal_states[0]`."""
        reply = super().get_internal_state(recv_req)
        reply.internal_state["coserve"] = {
            "version": sglang.__version__,
            "signed": is_signed(),
            "plugin": "live",
            "live": live_ids(self),
            "model": model_sizes(self.model_config),
            **self.coserve_state(),
        }
        return reply

    def coserve_state(self) -> dict[str, Any]:
        """What the runtime says about itself."""
        return {"policy": OFF, **self.coserving.to_plain()}


def model_sizes(config: Any) -> dict[str, int]:
    """What bounds the numbers of a request, by the model itself."""
    return {
        "vocab_size": int(config.vocab_size),
        "context_tokens": int(config.context_len),
        "hidden_size": int(config.hidden_size),
    }
