"""Where a text is cut, what shares its steps, who wrote it: no bit of its KV depends on it."""

from __future__ import annotations

from typing import Any

from engine_adapter.scheduling.snapshot import Snapshot
from engine_adapter.sglang.versions.installed import seam
from tests.engine.scenario_steps import NEW, flush
from tests.engine.scheduler_rig import Rig, prompt
from tests.engine.scripted_policy import ScriptedPolicy, Wishes

ALONE = {"off": (prompt(35, 230), -10)}
TOGETHER = {**ALONE, "b": (prompt(36, 170), -10), "on": (prompt(37, 61), 0)}
WAYS = ((0, ALONE), (1, ALONE), (7, ALONE), (45, TOGETHER), (100, TOGETHER))
"""Prompt tokens a step at most (0: all at once; a page if 1), and what is run."""
SAID = NEW - 4
COMPARED = len(ALONE["off"][0]) + SAID - 1
"""Tokens whose KV is compared: the prompt and what was said up to the token before the last."""


def cuts(rig: Rig) -> dict[str, Any]:
    """The KV of a prompt and of its answer, byte for byte, in chunks of 1 token to all of them.

    Then that of the same text as one prompt: a row that is computed again after a retract.
    """
    num_chunks, tokens, kv = zip(*(_run(rig, *way) for way in WAYS), strict=True)
    for said, written in zip(tokens[1:], kv[1:], strict=True):
        assert said == tokens[0], f"{said} instead of {tokens[0]}"
        assert written.shape == kv[0].shape
        assert (written == kv[0]).all(), "KV depends on where a prompt is cut"
    assert len(set(num_chunks)) >= 4, num_chunks
    text = ALONE["off"][0] + tokens[0][:SAID]
    for size in (0, 37):
        _, said, again = _run(rig, size, {"off": (text, -10)})
        assert (again == kv[0]).all(), "KV depends on whether a token was prompt or answer"
        assert said[: NEW - SAID] == tokens[0][SAID:], f"{said} does not go on {tokens[0]}"
    return {"chunks": num_chunks}


def margins(rig: Rig) -> dict[str, Any]:
    """How far apart the two best tokens are where a row is computed again (`recompute`, `anew`).

    What such a row has said goes through as a prompt then. Where that rounds otherwise (not here:
    `cuts`) its answer stays the same as long as no two best tokens are closer than that.
    """
    found: list[float] = []
    for rid, (seed, length) in {"recompute": (25, 77), "anew": (26, 133)}.items():
        flush(rig)
        rig.use(ScriptedPolicy())
        request = rig.request(rid, prompt(seed, length), NEW)
        request.return_logprob, request.top_logprobs_num = True, 2
        rig.scheduler.handle_generate_request(request)
        rig.run()
        best = rig.reqs[rid].logprob.output_top_logprobs_val
        found += [first - second for first, second in best]
    flush(rig)
    assert len(found) == 2 * NEW, found
    ties = sum(margin == 0.0 for margin in found)
    return {"smallest": round(min(found), 4), "ties": ties, "tokens": len(found)}


def _run(rig: Rig, size: int, jobs: dict[str, tuple[list[int], int]]) -> tuple[int, list[int], Any]:
    """Chunks the prompt took, what was said, and the KV of the first `COMPARED` tokens."""
    written: list[Any] = []
    page = rig.scheduler.page_size
    chunk = {"off": size * page if size < page else size} if size else {}

    def wish(snapshot: Snapshot) -> Wishes:
        request = snapshot.requests.get("off")
        said = request.output_tokens if request is not None else 0
        due = said and len(jobs["off"][0]) + said > COMPARED and not written
        if request is not None and due and not request.in_flight:
            req = rig.scheduler.execution.requests.get("off").req
            table = rig.scheduler.req_to_token_pool.req_to_token
            slots = table[seam.slot(req), :COMPARED].long()
            written.append(rig.scheduler.execution.checkpointer.pool.device_tokens(slots).clone())
            due = False
        # With the overlap loop a result is on its way as long as the row runs.
        return Wishes(park={"off"} if due else set(), chunk=chunk)

    flush(rig)
    policy = rig.use(ScriptedPolicy(wish))
    for rid, (ids, priority) in jobs.items():
        rig.submit(rid, ids, NEW, priority=priority)
    rig.run()
    flush(rig)
    chunks = [c for step in policy.finished for c in step.plan.prefill if c.rid == "off"]
    return len(chunks), rig.output("off"), written[0]
