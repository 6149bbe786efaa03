"""A stop at the last allowed token is a stop, with SGLang's own requests."""

from __future__ import annotations

import json

from api.engine_errors import FAILED_ALONE
from tests.engine.engine_scripts import run_code

_LOOK = """
import json
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.sampling.sampling_params import SamplingParams
from engine_adapter.sglang.finish import stop_first

class Letters:
    eos_token_id = 0
    additional_stop_token_ids = None
    def encode(self, text, **more):
        return [ord(char) for char in text]
    def decode(self, ids, **more):
        return "".join(map(chr, ids))

def ended(limit, text, **more):
    params = SamplingParams(max_new_tokens=limit, **more)
    params.normalize(Letters())
    req = Req("r", "hi", [104, 105], params, eos_token_ids={0}, vocab_size=1000)
    req.tokenizer = Letters()
    for char in text:
        req.output_ids.append(ord(char))
        stop_first(Req.update_finish_state, req)
    why = req.finished_reason.to_json() if req.finished() else {"type": None}
    return [why["type"], len(req.output_ids), params.max_new_tokens]

class Mute(Letters):
    def decode(self, ids, **more):
        raise OverflowError("out of range")

def broken():
    params = SamplingParams(max_new_tokens=9, stop=["x"])
    params.normalize(Letters())
    req = Req("r", "hi", [104, 105], params, eos_token_ids={0}, vocab_size=1000)
    req.tokenizer = Mute()
    req.output_ids.append(97)
    stop_first(Req.update_finish_state, req)
    why = req.finished_reason.to_json()
    return [why["type"], why["message"], why["status_code"], params.max_new_tokens]

print(json.dumps([broken(),
    ended(3, "abc"),
    ended(3, "abc", stop=["c"]),
    ended(3, "abc", stop=["bc"]),
    ended(3, "ab\\0"),
    ended(3, "ab\\0", ignore_eos=True),
    ended(3, "abc", stop_token_ids=[99]),
    ended(4, "abc", stop=["c"]),
    ended(4, "abc"),
]))
"""


def test_stops_and_ends_come_before_the_length() -> None:
    told = run_code(_LOOK)
    assert told.returncode == 0, told.stderr
    broken, *others = json.loads(told.stdout.splitlines()[-1])
    assert broken == ["abort", FAILED_ALONE, 400, 9], "no other request of the pass hears of it"
    assert others == [
        ["length", 3, 3],
        ["stop", 3, 3],
        ["stop", 3, 3],
        ["stop", 3, 3],
        ["length", 3, 3],
        ["stop", 3, 3],
        ["stop", 3, 4],
        [None, 3, 4],
    ]
