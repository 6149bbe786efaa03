"""The gateway's rules are never looser than the engine's: what passes here passes there."""

from __future__ import annotations

import json

from engine_adapter.sglang.numbers import NO_WAY_ON
from tests.engine.engine_scripts import run_code

_LOOK = """
import json
from types import SimpleNamespace
from api.json_schemas import KEYWORDS
from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat
from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest, CompletionRequest
from sglang.srt.sampling.sampling_params import SamplingParams
from api.chat_request import _FIELDS as CHAT, check_chat
from api.completion_request import _FIELDS as TEXT, check_completion
from api.errors import InvalidRequest
from api.numbers import ModelSizes, check_numbers
from engine_adapter.client.base import CHAT_PATH, COMPLETIONS_PATH, EngineCall
from engine_adapter.client.encoding import engine_body
from engine_adapter.client.rid import new_rid
from engine_adapter.scheduling.request import RequestClass

SIZES = ModelSizes(1000, 2048, 64)
VALUES = [
    None, True, False, 0, -0.0, 1, -1, 2, 3, 1e-300, 1e-9, 0.5, 1.0, 1.5, 2.0, 2.5, 5, 20, 21, 128,
    129, 999, 1000, 2047, 2**31, 2**63, -2**63, 1e300, "", "x", "none", "low", "minimal", "medium",
    "high", "xhigh", "auto", "required", "default", "flex", [], ["x"], [0], [999], [1000], {},
    {"0": 1}, {"999": -100}, {"1000": 1}, {"1": 101}, {"type": "text"}, {"type": "json_object"},
    {"enable_thinking": True},
]
FUNCTION = {"name": "f", "parameters": {"type": "object"}}
TOOLS = [{"type": "function", "function": {**FUNCTION, "strict": None, "description": None}}]
SCHEMAS = [
    value for keyword in KEYWORDS for value in (
        *({keyword: one} for one in VALUES[::4]), {"properties": {"a": {keyword: ["a"]}}},
        {"$defs": {"a": {keyword: {"a": ["b"]}}}}, {"items": {keyword: [{}]}},
    )
]
FUNCTIONS = [{"name": "f", "parameters": schema} for schema in SCHEMAS]
FUNCTIONS += [{"name": name} for name in VALUES] + VALUES
MORE = {
    "tools": [[{"type": "function", "function": one}] for one in FUNCTIONS],
    "functions": [[one] for one in FUNCTIONS],
    "response_format": [
        *VALUES,
        *({"type": "json_schema", "json_schema": {"name": "n", "schema": one}} for one in SCHEMAS),
    ],
}
SERVER = SimpleNamespace(tokenizer_manager=SimpleNamespace(
    server_args=SimpleNamespace(allow_auto_truncate=False, context_length=2048),
    model_config=SimpleNamespace(context_len=2048),
))
BODIES = [
    (CHAT_PATH, CHAT, check_chat, ChatCompletionRequest,
     [{}, {"max_tokens": 4}, {"tools": TOOLS}, {"tools": TOOLS, "tool_choice": "required"}],
     {"messages": [{"role": "user", "content": "hi"},
                   {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
                   {"role": "user", "content": [{"type": "text", "text": "x"}], "name": None}]}),
    (COMPLETIONS_PATH, TEXT, check_completion, CompletionRequest,
     [{}, {"max_tokens": 4}], {"prompt": "hi"}),
]
passed, looser = 0, []
for path, fields, check, kind, more, base in BODIES:
    for extra in more:
        for name in fields:
            if name in ("messages", "prompt"):
                continue
            for value in MORE.get(name, VALUES):
                body = {"model": "m", **base, **extra, name: value}
                try:
                    check(body)
                    check_numbers(body, SIZES)
                except InvalidRequest:
                    continue
                passed += 1
                call = EngineCall(path, body, new_rid(), RequestClass.ONLINE)
                try:
                    asked = kind(**engine_body(call, stream=False))
                    if kind is ChatCompletionRequest:
                        refused = OpenAIServingChat._validate_request(SERVER, asked)
                        # How long it may be is known of the model: the gateway looks there.
                        assert not refused or "is too large" in refused, refused
                    params = {
                        "temperature": asked.temperature, "top_p": asked.top_p,
                        "min_p": asked.min_p, "top_k": asked.top_k,
                        "frequency_penalty": asked.frequency_penalty,
                        "presence_penalty": asked.presence_penalty,
                        "repetition_penalty": asked.repetition_penalty,
                        "min_new_tokens": asked.min_tokens, "n": asked.n, "regex": asked.regex,
                        "max_new_tokens": getattr(asked, "max_completion_tokens", None)
                        or asked.max_tokens,
                        "ebnf": asked.ebnf, "logit_bias": asked.logit_bias, "stop": asked.stop,
                        "stop_token_ids": asked.stop_token_ids, "sampling_seed": asked.seed,
                    }
                    made = SamplingParams(**params)
                    made.verify(SIZES.vocab_size)
                except Exception as error:
                    looser.append([path, name, value, str(error)[:200]])
print(json.dumps([passed, looser[:20]]))
"""


def test_what_passes_the_gateway_passes_the_engine() -> None:
    told = run_code(_LOOK)
    assert told.returncode == 0, told.stderr
    passed, looser = json.loads(told.stdout.splitlines()[-1])
    assert passed > 500
    assert looser == []


_DEAD_END = """
import json
from engine_adapter.sglang import numbers
from sglang.srt.managers.scheduler_components import batch_result_processor as processor
numbers.name_dead_ends()
said = ((), ("Grammar accept_token failed: 7", 500, "Error"), ("Too many.", 500, "Error"))
print(json.dumps([vars(processor.FINISH_ABORT(*told)) for told in said]))
"""


def test_a_grammars_dead_end_is_the_requests_fault_in_whatever_words_a_release_has() -> None:
    done = run_code(_DEAD_END)
    assert done.returncode == 0, done.stderr[-3000:]
    old, new, other = json.loads(done.stdout.splitlines()[-1])
    assert old == new
    assert (old["message"], old["status_code"]) == (NO_WAY_ON, 400)
    assert (other["message"], other["status_code"]) == ("Too many.", 500)
