"""One request raises in every place where it can, on a real scheduler; the others go on.

Runs in the engine's venv: ``python coserving_confine.py OVERLAP PAGE_SIZE [SCENARIO...]``; prints
one JSON object, ``{scenario: {"error": ... | null}}``. SGLang's strict checks of its pools are on
throughout, and each scenario ends with a flush, which finds any page or slot that was lost.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sglang.srt.managers.schedule_batch import FINISH_ABORT
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo

from api.engine_errors import FAILED_ALONE
from engine_adapter.sglang.versions.installed import seam
from tests.engine.coserving_grammars import EOS, SCHEMA, byte_tokenizer
from tests.engine.scenario_steps import NEW, counters, flush, report, undisturbed
from tests.engine.scheduler_rig import VOCAB, Rig, prompt
from tests.engine.scripted_policy import ScriptedPolicy, Wishes

JOBS = {
    "on": (prompt(71, 40), 0),
    "off": (prompt(72, 300), -10),
    "off2": (prompt(73, 70), -10),
    "on2": (prompt(74, 90), 0),
}
MARKED = "bad"
BAD = (prompt(75, 120), -10)
WISHES = Wishes(chunk={"off": 64, MARKED: 48})


class Trouble(Exception):
    """Raised on purpose."""


@contextmanager
def replaced(owner: Any, name: str, around: Callable[[Any], Any]) -> Iterator[None]:
    """One attribute, for as long as the block runs."""
    was = getattr(owner, name)
    setattr(owner, name, around(was))
    try:
        yield
    finally:
        setattr(owner, name, was)


def in_pass(rig: Rig, slots: Any, *, after_tokens: int = 0) -> bool:
    """Whether the marked request is in the batch that runs, and has said so much already."""
    req = rig.reqs.get(MARKED)
    return (
        req is not None
        and seam.slot(req) is not None
        and len(req.output_ids) >= after_tokens
        and seam.slot(req) in slots.tolist()
    )


def survives(rig: Rig, *, expected: dict[str, list[int]], **sampling: Any) -> dict[str, Any]:
    """Run everyone with the marked request, which fails alone; the others say what they would."""
    rig.use(ScriptedPolicy(lambda snapshot: WISHES))
    before = counters(rig)["failed_requests"]
    for rid, (ids, priority) in {MARKED: BAD, **JOBS}.items():
        more = sampling if rid == MARKED else {}
        rig.submit(rid, ids, NEW, priority=priority, **more)
    rig.run()
    for rid, want in expected.items():
        assert rig.output(rid) == want, f"{rid}: {rig.output(rid)} instead of {want}"
    reason = rig.reqs[MARKED].finished_reason
    assert isinstance(reason, FINISH_ABORT), reason
    assert reason.message == FAILED_ALONE, reason.message
    assert counters(rig)["failed_requests"] - before == 1
    flush(rig)
    return {"told": len(rig.reqs[MARKED].output_ids)}


def expected_of(rig: Rig) -> dict[str, list[int]]:
    return undisturbed(rig, JOBS, WISHES)


def in_the_first_chunk(rig: Rig) -> dict[str, Any]:
    """The pass raises, from the marked request's first prompt tokens on."""
    return _in_the_pass(rig, 0)


def in_a_decode(rig: Rig) -> dict[str, Any]:
    """The pass raises in the middle of the marked answer."""
    found = _in_the_pass(rig, 5)
    assert found["told"] >= 5, found
    return found


def _in_the_pass(rig: Rig, after_tokens: int) -> dict[str, Any]:
    expected = expected_of(rig)

    def around(forward: Any) -> Any:
        def raising(batch: Any, *args: Any, **kwargs: Any) -> Any:
            if in_pass(rig, batch.req_pool_indices, after_tokens=after_tokens):
                raise Trouble
            return forward(batch, *args, **kwargs)

        return raising

    with replaced(rig.scheduler.tp_worker.model_runner, "forward", around):
        return survives(rig, expected=expected)


def between_layers(rig: Rig) -> dict[str, Any]:
    """Half of the layers have written their KV when the pass raises."""
    expected = expected_of(rig)
    layer = rig.scheduler.tp_worker.model_runner.model.model.layers[3]

    def raising(_module: Any, args: tuple[Any, ...]) -> None:
        if in_pass(rig, args[2].req_pool_indices, after_tokens=2):
            raise IndexError("index out of range in self")

    hook = layer.register_forward_pre_hook(raising)
    try:
        return survives(rig, expected=expected)
    finally:
        hook.remove()


def in_sampling(rig: Rig) -> dict[str, Any]:
    """Logits are there; drawing tokens from them raises."""
    expected = expected_of(rig)

    def around(sample: Any) -> Any:
        def raising(logits: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
            if in_pass(rig, batch.req_pool_indices, after_tokens=3):
                raise Trouble
            return sample(logits, batch, *args, **kwargs)

        return raising

    with replaced(rig.scheduler.tp_worker.model_runner, "sample", around):
        return survives(rig, expected=expected)


def in_sampling_parameters(rig: Rig) -> dict[str, Any]:
    """The batch has its pages; its sampling parameters cannot be put into tensors."""
    expected = expected_of(rig)

    def around(build: Any) -> Any:
        def raising(batch: Any, *args: Any, **kwargs: Any) -> Any:
            if any(req.rid == MARKED for req in batch.reqs):
                raise Trouble
            return build(batch, *args, **kwargs)

        return staticmethod(raising)

    with replaced(SamplingBatchInfo, "from_schedule_batch", around):
        return survives(rig, expected=expected)


def when_its_chunk_is_taken(rig: Rig) -> dict[str, Any]:
    """Its prompt cannot be looked up, while others of the step have their chunks already."""
    expected = expected_of(rig)

    def around(add: Any) -> Any:
        def adding(req: Any, *args: Any, **kwargs: Any) -> Any:
            if req.rid == MARKED:
                req.init_next_round_input = _raise
            return add(req, *args, **kwargs)

        return adding

    with replaced(rig.scheduler, "_add_request_to_queue", around):
        return survives(rig, expected=expected)


def when_it_comes(rig: Rig) -> dict[str, Any]:
    """What is known of it cannot be read."""
    expected = expected_of(rig)

    def around(add: Any) -> Any:
        def adding(req: Any, *args: Any, **kwargs: Any) -> Any:
            if req.rid == MARKED:
                req.sampling_params.custom_params = Unreadable(coserve={})
            return add(req, *args, **kwargs)

        return adding

    with replaced(rig.scheduler, "_add_request_to_queue", around):
        found = survives(rig, expected=expected)
    assert found["told"] == 0
    return found


def in_its_grammar(rig: Rig) -> dict[str, Any]:
    """Its grammar raises when the next tokens that it allows are asked for."""
    expected = expected_of(rig)
    rig.scheduler.grammar_manager.grammar_backend = _xgrammar()
    calls = iter(range(1000))

    def around(add: Any) -> Any:
        def adding(req: Any, *args: Any, **kwargs: Any) -> Any:
            if req.rid == MARKED:
                fill = req.grammar.fill_vocab_mask

                def raising(*given: Any) -> None:
                    if next(calls) >= 4:
                        raise Trouble
                    fill(*given)

                req.grammar.fill_vocab_mask = raising
            return add(req, *args, **kwargs)

        return adding

    with replaced(rig.scheduler, "_add_request_to_queue", around):
        return survives(rig, expected=expected, json_schema=json.dumps(SCHEMA))


def nobody_alone(rig: Rig) -> dict[str, Any]:
    """Every pass raises: that is no request's fault, and the engine ends."""
    expected_of(rig)

    def around(_forward: Any) -> Any:
        return _raise

    rig.use(ScriptedPolicy(lambda snapshot: WISHES))
    for rid, (ids, priority) in JOBS.items():
        rig.submit(rid, ids, NEW, priority=priority)
    with replaced(rig.scheduler.tp_worker.model_runner, "forward", around):
        try:
            rig.run()
        except Trouble:
            return {"ended": True}
    raise AssertionError("the scheduler went on")


def _raise(*_args: Any, **_kwargs: Any) -> Any:
    raise Trouble


class Unreadable(dict[str, Any]):
    """Custom parameters of a request that cannot be read."""

    def get(self, *_: Any) -> Any:
        raise Trouble


def _xgrammar() -> Any:
    from sglang.srt.constrained.xgrammar_backend import XGrammarGrammarBackend

    return XGrammarGrammarBackend(
        byte_tokenizer(), vocab_size=VOCAB, model_eos_token_ids=[EOS], any_whitespace=False
    )


SCENARIOS = (
    in_the_first_chunk,
    in_a_decode,
    between_layers,
    in_sampling,
    in_sampling_parameters,
    when_its_chunk_is_taken,
    when_it_comes,
    in_its_grammar,
    nobody_alone,  # the last one: nothing runs after it
)


def main() -> None:
    overlap, page_size = sys.argv[1] == "1", int(sys.argv[2])
    chosen = [one for one in SCENARIOS if not sys.argv[3:] or one.__name__ in sys.argv[3:]]
    report(chosen, Rig(overlap=overlap, page_size=page_size))


if __name__ == "__main__":
    main()
