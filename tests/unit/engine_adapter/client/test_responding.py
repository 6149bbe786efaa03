"""A row of /v1/responses, in a batch or in the background, whose chat call the engine refuses."""

from __future__ import annotations

from dataclasses import replace

from engine_adapter.client.base import RESPONSES_PATH, EngineCall, EngineReply, RequestClass
from engine_adapter.client.decoding import error_of, error_reply
from engine_adapter.client.responding import respond
from engine_adapter.client.rid import new_rid
from tests.fakes.client import FakeEngineClient

CALL = EngineCall(
    path=RESPONSES_PATH,
    body={"model": "m", "input": "hi", "text": {"format": {"type": "json_object"}}},
    rid=new_rid(),
    request_class=RequestClass.OFFLINE,
    timeout_s=5,
    request_id="req_1",
)


class NoGrammars(FakeEngineClient):
    """Refuses every schema."""

    async def call(self, call: EngineCall) -> EngineReply:
        words = b'{"message": "Failed to compile json grammar: too deep"}'
        return error_reply(call, error_of(call, 400, words))


async def test_its_error_speaks_of_its_own_fields() -> None:
    reply = await respond(NoGrammars(), CALL)
    assert not reply.ok
    error = reply.body["error"]
    assert error["param"] == "text.format"
    assert error["message"] == "The engine cannot compile the schema in 'text.format': too deep."
    long = replace(CALL, body={**CALL.body, "max_output_tokens": 9000})
    error = (await respond(FakeEngineClient(), long)).body["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "max_output_tokens")
    assert error["message"].endswith("With this prompt 'max_output_tokens' can be at most 2047.")
