"""Offline requests with a JSON schema that give way to others: what they say stays what it was.

The grammar's state lives in SGLang's request and moves on when a result is processed; parking,
retracting and stopping must neither lose nor repeat a move. The backend is SGLang's own, with a
tokenizer whose tokens are single bytes.
"""

from __future__ import annotations

import json
from typing import Any

from sglang.srt.constrained.xgrammar_backend import XGrammarGrammarBackend
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from engine_adapter.scheduling.request import Phase
from engine_adapter.scheduling.snapshot import Snapshot
from engine_adapter.sglang import guards
from tests.engine.scenario_steps import counters, flush, gained, stopped_layers
from tests.engine.scheduler_rig import VOCAB, Rig, prompt
from tests.engine.scripted_policy import ScriptedPolicy, Wishes

EOS = 1
SCHEMA = {
    "type": "array",
    "items": {"type": "integer", "minimum": 100, "maximum": 999},
    "minItems": 12,
    "maxItems": 12,
}
LIMIT = 96  # tokens; the schema ends the answer before


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Tokens 2..257 are the bytes; the rest are never part of a text."""
    names = ["<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    names += [f"<{i}>" for i in range(len(names), VOCAB)]
    core = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>")


def grammar(rig: Rig) -> dict[str, Any]:
    """A JSON request beside a plain one: parked, retracted and restored, its passes stopped."""
    guards.guard_grammars()
    tokenizer = byte_tokenizer()
    manager = rig.scheduler.grammar_manager
    manager.grammar_backend = XGrammarGrammarBackend(
        tokenizer, vocab_size=VOCAB, model_eos_token_ids=[EOS], any_whitespace=False
    )

    def run(policy: ScriptedPolicy, script: Any = None) -> list[list[int]]:
        flush(rig)
        rig.use(policy)
        rig.submit("json", prompt(61, 90), LIMIT, json_schema=json.dumps(SCHEMA))
        for req in manager.grammar_queue:
            req.grammar.result()  # compiled before the first step, so that steps can be counted
        rig.submit("plain", prompt(62, 70), LIMIT)
        rig.run(script)
        rig.stop_at.clear()
        return [rig.output(rid) for rid in ("json", "plain")]

    expected = run(ScriptedPolicy())
    text = expected[0][: expected[0].index(EOS)]  # the rig ignores the end of an answer
    said = json.loads(tokenizer.decode(text))
    assert len(said) == 12, said
    assert all(100 <= number <= 999 for number in said), said

    before = counters(rig)
    retract_after = [9, 23, 40]
    stops = {7: 1, 30: 3, 45: 5}

    def wish(snapshot: Snapshot) -> Wishes:
        request = snapshot.requests.get("json")
        due = request is not None and retract_after and request.output_tokens >= retract_after[0]
        if request is not None and due and request.phase is Phase.DECODE:
            if request.in_flight:  # a result is on its way: wait for it without running again
                return Wishes(park={"json"}, checkpoint=True)
            retract_after.pop(0)
            return Wishes(retract={"json"})
        park = {"json"} if rig.step % 5 == 2 else ({"plain"} if rig.step % 5 == 4 else set())
        return Wishes(park=park, checkpoint=True)

    def script(rig: Rig) -> None:
        if rig.step in stops:
            rig.stop_at[rig.scheduler.execution.snapshots._step_id + 1] = stops[rig.step]

    disturbed = run(ScriptedPolicy(wish), script)
    assert disturbed == expected, f"{disturbed} instead of {expected}"
    after = counters(rig)
    events = gained(before, after, "parks", "retracts", "restored_requests", "recomputed_tokens")
    events["layers"] = stopped_layers(before, after)
    assert events["parks"] >= 10, events
    assert (events["retracts"], events["restored_requests"]) == (3, 3), events
    assert events["recomputed_tokens"] == 0, events
    assert events["layers"] == [1, 3, 5], events
    flush(rig)
    return events


GRAMMARS = [grammar]
