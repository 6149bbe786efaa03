"""How many online requests per second an engine answers when all of its slots are busy."""

from __future__ import annotations

from collections.abc import Sequence

from lab.workload.metrics import queue_grows
from lab.workload.records import RequestRecord
from lab.workload.summary import SystemRun, ttfts_s
from lab.workload.traces import TraceRequest

MIN_PROBE = 24
UNANSWERED_SHARE = 0.1
WAITING_SHARE = 0.05


def probe_requests(online: Sequence[TraceRequest], slots: int) -> list[TraceRequest]:
    """The first requests of a trace, all at once and with the same work.

    Enough to fill the engine's slots. Every answer has their mean length: one that is ten times as
    long as the others would run on alone, and the engine's capacity would seem to be a fraction of
    what it is.
    """
    first = online[: max(MIN_PROBE, slots)]
    output_tokens = max(1, round(sum(r.output_tokens for r in first) / len(first)))
    return [TraceRequest(0.0, r.input_tokens, output_tokens) for r in first]


def answered_per_s(probe: Sequence[RequestRecord]) -> float:
    """Requests per second of a probe: its size over the time to the last token.

    Raises:
        ValueError: If the engine answered none of them; the message quotes what it said.
    """
    answered = [record for record in probe if record.token_times_s]
    if not answered:
        said = next((record.error for record in probe if record.error), "nothing")
        raise ValueError(f"the engine answered none of the requests that probe it: {said}")
    return len(answered) / max(record.token_times_s[-1] for record in answered)


def is_overloaded(run: SystemRun) -> bool:
    """Whether requests came faster than they were answered: the queue of the run grew.

    Those of the last third waited far longer than those of the first, and some still waited when
    the window closed (without any, their prompts were only longer); or a tenth got no answer.
    """
    online, end_s = run.result.online, run.result.duration_s
    waiting = sum(not r.token_times_s or r.token_times_s[0] > end_s for r in online)
    unanswered = sum(not r.token_times_s for r in online)
    grows = queue_grows(ttfts_s(run)) and waiting > max(1.0, WAITING_SHARE * len(online))
    return grows or unanswered > UNANSWERED_SHARE * len(online)
