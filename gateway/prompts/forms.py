"""What an endpoint makes of an engine's answers: one body, or a stream of events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from starlette.responses import Response

from api.chunks import DONE_EVENT, ChunkWriter, StreamHead, error_event
from api.completion_request import only_sampled
from api.engine_errors import schema_param, tool_params
from api.errors import ApiError
from api.json_output import dump, dump_long, let_go_of_lists
from api.replies import public_id
from api.tool_calls import offer_of
from api.usage import TokenUsage
from engine_adapter.client.base import EMBEDDINGS_PATH, EngineClient, EngineReply
from engine_adapter.client.choices import ONLINE_AT_ONCE, complete_choices
from engine_adapter.client.embedding import embed
from engine_adapter.client.long_answers import aside
from gateway.http.streaming_list import dumped
from gateway.prompts.prompt import Prompt

JSON = "application/json"


class StreamWriter(Protocol):
    """Rewrites the events of one engine call.

    Attributes:
        num_texts: Events so far that brought something of the answer.
    """

    num_texts: int

    @property
    def finished(self) -> bool:
        """A finish reason has come; nothing of this call follows."""
        ...

    @property
    def usage(self) -> TokenUsage:
        """Tokens so far, as the engine last counted them."""
        ...

    def feed(self, event: bytes) -> bytes:
        """What one event becomes; raises `StreamFailed` for an error of the engine's."""
        ...


class StreamForm(Protocol):
    """The form of one streamed reply.

    Attributes:
        writers: One for each choice, in order.
    """

    writers: Sequence[StreamWriter]

    async def end(self) -> bytes:
        """The last bytes of a stream whose calls have all ended well."""
        ...

    async def fail(self, error: ApiError) -> bytes:
        """The last bytes of a stream that has begun and cannot go on."""
        ...


class AnswerForm(Protocol):
    """The form of the answers of one endpoint."""

    @property
    def truncates(self) -> bool:
        """Whether a conversation that is too long is sent without its beginning."""
        ...

    async def whole(self, prompt: Prompt, client: EngineClient, created: int) -> Response:
        """The response to a request that is not streamed.

        Raises:
            EngineUnavailable: The engine was lost.
        """
        ...

    def streamed(self, prompt: Prompt, created: int) -> StreamForm:
        """The form of the response to one that is."""
        ...

    def refusal(self, error: ApiError) -> ApiError:
        """An error from before the first byte, in the words of the endpoint."""
        ...


class CompletionForm:
    """Chat completions, completions and embeddings."""

    truncates: Final = False

    async def whole(self, prompt: Prompt, client: EngineClient, created: int) -> Response:
        """One body of all choices."""
        if prompt.path == EMBEDDINGS_PATH:
            reply = await embed(client, prompt.choices[0].call)
        else:
            # All at once: each has its place (`FairRoom`).
            reply = await complete_choices(client, prompt.choices, ONLINE_AT_ONCE)
        if not reply.ok:
            return failed(reply)
        body = reply.body
        if prompt.path != EMBEDDINGS_PATH:
            body = {**body, "created": created}
        if prompt.service_tier is not None:
            body["service_tier"] = prompt.service_tier
        return Response(await _json_of(body, is_long=reply.is_long), media_type=JSON)

    def streamed(self, prompt: Prompt, created: int) -> StreamForm:
        return ChunkForm(prompt, created)

    def refusal(self, error: ApiError) -> ApiError:
        """As it is: engines speak of the fields of these endpoints."""
        return error


class ChunkForm:
    """Chunks of a chat or text completion."""

    def __init__(self, prompt: Prompt, created: int) -> None:
        self._prompt = prompt
        self._head = StreamHead(
            chat=prompt.chat,
            public_id=public_id(prompt.path, prompt.choices[0].call.rid),
            created=created,
            model=prompt.model,
            include_usage=prompt.include_usage,
            service_tier=prompt.service_tier,
            offer=offer_of(prompt.choices[0].call.body) if prompt.chat else None,
            schema_param=schema_param(prompt.choices[0].call.body),
            tool_params=tool_params(prompt.choices[0].call.body),
            only_sampled=not prompt.chat and only_sampled(prompt.choices[0].call.body),
        )
        self.writers: Sequence[StreamWriter] = [
            ChunkWriter(self._head, choice.index) for choice in prompt.choices
        ]

    async def end(self) -> bytes:
        """The usage if it is wanted, and `[DONE]`."""
        if self._prompt.include_usage:
            return self._head.usage_chunk(self._prompt.used()) + DONE_EVENT
        return DONE_EVENT

    async def fail(self, error: ApiError) -> bytes:
        """An error event, which nothing follows (rows S-16, S-17)."""
        return error_event(error)


COMPLETIONS: Final = CompletionForm()


def dumped_at_last(body: Mapping[str, Any]) -> bytes:
    """A long body as JSON; nobody needs it any more."""
    made = dump_long(body)
    let_go_of_lists(body)
    return made


async def _json_of(body: Mapping[str, Any], *, is_long: bool) -> bytes:
    """A body as JSON; the vectors of embeddings in slices, of which there may be thousands."""
    if body["object"] != "list":
        made = dumped_at_last if is_long else dump
        return await aside(partial(made, body), is_long=is_long)
    items = await dumped(body["data"], dump)
    head = dump({**body, "data": []})
    return head.replace(b'"data":[]', b'"data":[' + b",".join(items) + b"]", 1)


def failed(reply: EngineReply) -> Response:
    """The response to a call that the engine did not answer."""
    return Response(
        dump(reply.body),
        status_code=reply.status_code,
        headers=dict(reply.headers),
        media_type=JSON,
    )
