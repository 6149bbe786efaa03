"""The gateway's rules are never looser than the engine's: what passes here passes there."""

from __future__ import annotations

import json

from engine_adapter.sglang.numbers import NO_WAY_ON, TOO_SLOW
from tests.engine.engine_scripts import ROOT, run_code

_LOOK = """
import copy, itertools, json, sys
from types import SimpleNamespace
sys.path.insert(0, ROOT)
from api.schemas.held import KEYWORDS
from sglang.srt import runtime_context
from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat
from sglang.srt.entrypoints.openai.protocol import (
    ChatCompletionRequest, CompletionRequest, EmbeddingRequest,
)
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.server_args import ServerArgs
from api.chat_request import _FIELDS as CHAT, check_chat
from api.completion_request import _FIELDS as TEXT, check_completion
from api.embedding_request import _FIELDS as VECTORS, check_embedding
from api.errors import InvalidRequest
from api.mapped_fields import MAPPED_FIELDS, mapped
from api.numbers import ModelSizes, check_numbers
from api.responses.call import chat_call, check_alone
from api.responses.request import _FIELDS as RESPONSE
from engine_adapter.client.base import (
    CHAT_PATH, COMPLETIONS_PATH, EMBEDDINGS_PATH, RESPONSES_PATH, EngineCall,
)
from engine_adapter.client.choices import single_choice_bodies
from engine_adapter.client.encoding import engine_body
from engine_adapter.client.rid import new_rid
from engine_adapter.scheduling.request import RequestClass
from tests.fuzz.values import places

GONE = object()
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
if hasattr(runtime_context, "SpawnRanks"):  # newer releases ask their context, not the manager
    runtime_context.publish(ServerArgs(model_path="dummy", context_length=2048), role="test")
SERVER = object.__new__(OpenAIServingChat)
vars(SERVER).update(
    is_gpt_oss=False, is_gemma4=False, is_minimax_m3=False,
    tokenizer_manager=SimpleNamespace(
        server_args=SimpleNamespace(allow_auto_truncate=False, context_length=2048),
        model_config=SimpleNamespace(context_len=2048, is_multimodal=False),
    ),
)
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
MESSAGES = [
    {"role": "system", "content": [{"type": "text", "text": "x"}], "name": "n"},
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "refusal": None},
    {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "hm"},
    {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "x"}]},
    {"role": "user", "content": [{"type": "text", "text": "x"}], "name": None},
]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}}
FORM = {"type": "json_schema", "json_schema": {
    "name": "n", "schema": SCHEMA, "strict": False, "description": "d"}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [
    {"type": "function", "function": {"name": "f"}}]}}
# Every shape that a body can have; each part of each is replaced, by each value in one of them or
# another, and left out.
WHOLE = {
    CHAT_PATH: [
        {"messages": MESSAGES}, {"messages": MESSAGES[1:2], "max_tokens": 4},
        {"messages": MESSAGES[1:2], "tools": TOOLS},
        {"messages": MESSAGES[1:2], "tools": TOOLS, "tool_choice": "required"},
        {"messages": MESSAGES[1:2], "tools": TOOLS, "tool_choice": ALLOWED},
        {"messages": MESSAGES[1:2], "tools": TOOLS,
         "tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"messages": MESSAGES[1:2], "functions": [FUNCTION], "function_call": {"name": "f"}},
        {"messages": MESSAGES[1:2], "response_format": FORM, "logprobs": True, "top_logprobs": 2},
        {"messages": MESSAGES[1:2], "stream": True, "stream_options": {"include_usage": True}},
        {"messages": MESSAGES[1:2], "structured_outputs": {"json": SCHEMA}, "stop": ["a", "b"]},
        {"messages": MESSAGES[1:2], "guided_choice": ["a", "b"], "reasoning": {"effort": "low"}},
        {"messages": MESSAGES[1:2], "chat_template_kwargs": {"thinking": True},
         "logit_bias": {"1": 2}, "stop_token_ids": [1], "metadata": {"a": "b"}},
    ],
    COMPLETIONS_PATH: [
        {"prompt": "hi"}, {"prompt": ["hi", "ho"], "max_tokens": 4}, {"prompt": [1, 2]},
        {"prompt": [[1], [2, 3]], "n": 2, "best_of": 2}, {"prompt": "hi", "response_format": FORM},
        {"prompt": "hi", "echo": True, "logprobs": 1, "max_tokens": 0},
        {"prompt": "hi", "guided_regex": "a+", "stop": "x", "logit_bias": {"1": 2}},
    ],
    EMBEDDINGS_PATH: [
        {"input": "hi"}, {"input": ["hi", "ho"]}, {"input": [1, 2]}, {"input": [[1], [2]]},
        {"input": "hi", "dimensions": 4, "encoding_format": "base64"},
    ],
    RESPONSES_PATH: [
        {"input": "hi", "max_output_tokens": 16},
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
                   {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                   {"type": "function_call_output", "call_id": "c", "output": "x"}],
         "tools": [{"type": "function", **FUNCTION, "strict": False}], "tool_choice": "required"},
        {"input": "hi", "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA},
                                 "verbosity": "low"}, "reasoning": {"effort": "max"}},
        {"input": "hi", "instructions": "x", "include": ["message.output_text.logprobs"],
         "top_logprobs": 2, "stream": True, "store": False},
    ],
}
KINDS = {
    CHAT_PATH: ChatCompletionRequest, COMPLETIONS_PATH: CompletionRequest,
    EMBEDDINGS_PATH: EmbeddingRequest,
}
CHECKS = {
    CHAT_PATH: check_chat, COMPLETIONS_PATH: check_completion, EMBEDDINGS_PATH: check_embedding,
    RESPONSES_PATH: check_alone,
}
NAMES = {
    CHAT_PATH: {*CHAT, *ChatCompletionRequest.model_fields},
    COMPLETIONS_PATH: {*TEXT, *CompletionRequest.model_fields},
    EMBEDDINGS_PATH: {*VECTORS, *EmbeddingRequest.model_fields},
    RESPONSES_PATH: {*RESPONSE},
}


def bodies(path):
    # Each whole body with one part replaced or left out, and with one more field.
    for number, whole in enumerate(WHOLE[path]):
        whole = {"model": "m", **whole}
        yield "whole", whole
        for place, _ in enumerate(places(whole)):
            for value in [*VALUES[(number + place) % 4 :: 4], GONE]:
                body = copy.deepcopy(whole)
                within, key = next(itertools.islice(places(body), place, None))
                if value is GONE:
                    del within[key]
                else:
                    within[key] = value
                yield f"{number}, at {key}", body
        for name in NAMES[path] | MAPPED_FIELDS:
            if name in whole:
                continue
            for value in MORE.get(name, VALUES) if number < 2 else VALUES[number % 8 :: 8]:
                yield name, {**whole, name: value}


def engine_takes(path, body):
    # Raises what SGLang says of a body that has passed.
    if path == RESPONSES_PATH:
        path, body = CHAT_PATH, chat_call(body)
    for single, _ in single_choice_bodies(path, body):
        call = EngineCall(path, single, new_rid(), RequestClass.ONLINE)
        asked = KINDS[path](**engine_body(call, stream=False))
        if path == EMBEDDINGS_PATH:
            return
        if path == CHAT_PATH:
            refused = SERVER._validate_request(asked)
            # How long it may be is known of the model: the gateway looks there.
            assert not refused or "is too large" in refused, refused
        params = {
            "temperature": asked.temperature, "top_p": asked.top_p, "min_p": asked.min_p,
            "top_k": asked.top_k, "frequency_penalty": asked.frequency_penalty,
            "presence_penalty": asked.presence_penalty,
            "repetition_penalty": asked.repetition_penalty, "min_new_tokens": asked.min_tokens,
            "n": asked.n, "regex": asked.regex, "ebnf": asked.ebnf,
            "max_new_tokens": getattr(asked, "max_completion_tokens", None) or asked.max_tokens,
            "logit_bias": asked.logit_bias, "stop": asked.stop,
            "stop_token_ids": asked.stop_token_ids, "sampling_seed": asked.seed,
        }
        made = SamplingParams(**params)
        made.verify(SIZES.vocab_size)


passed, looser = {}, []
for path in WHOLE:
    for where, body in bodies(path):
        try:
            plain = mapped(path, body)
            CHECKS[path](plain)
            check_numbers(plain, SIZES)
        except InvalidRequest:
            continue
        passed[path] = passed.get(path, 0) + 1
        try:
            engine_takes(path, plain)
        except Exception as error:
            looser.append([path, where, str(body)[:300], repr(error)[:300]])
print(json.dumps([passed, looser[:20]]))
"""


def test_what_passes_the_gateway_passes_the_engine() -> None:
    told = run_code(_LOOK.replace("ROOT", repr(str(ROOT))))
    assert told.returncode == 0, told.stderr
    passed, looser = json.loads(told.stdout.splitlines()[-1])
    assert len(passed) == 4
    assert min(passed.values()) > 100
    assert sum(passed.values()) > 5_000
    assert looser == []


_DEAD_END = """
import json
from engine_adapter.sglang import numbers
from sglang.srt.managers.scheduler_components import batch_result_processor as processor
numbers.name_dead_ends()
said = ((), ("Grammar accept_token failed: 7", 500, "Error"), ("Too many.", 500, "Error"))
found = [vars(processor.FINISH_ABORT(*told)) for told in said]
try:
    raise ValueError(numbers.TOO_SLOW)
except ValueError:
    found += [vars(processor.FINISH_ABORT(*told)) for told in said[:2]]
print(json.dumps(found))
"""


def test_a_grammars_dead_end_is_the_requests_fault_in_whatever_words_a_release_has() -> None:
    done = run_code(_DEAD_END)
    assert done.returncode == 0, done.stderr[-3000:]
    old, new, other, *slow = json.loads(done.stdout.splitlines()[-1])
    assert old == new
    assert (old["message"], old["status_code"]) == (NO_WAY_ON, 400)
    assert (other["message"], other["status_code"]) == ("Too many.", 500)
    for one in slow:
        assert one["message"].endswith(TOO_SLOW)
        assert one["status_code"] == 400
