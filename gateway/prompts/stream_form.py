"""What a streamed reply looks like: how engine events become the caller's, and how it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from api.chunks import DONE_EVENT, ChunkWriter, StreamHead, error_event
from api.engine_errors import schema_param
from api.errors import ApiError
from api.replies import public_id
from api.tool_calls import offer_of
from api.usage import TokenUsage
from gateway.prompts.admission import Admitted


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

    def refusal(self, error: ApiError) -> ApiError:
        """An error from before the first byte, in the words of the endpoint."""
        ...


class ChunkForm:
    """Chunks of a chat or text completion."""

    def __init__(self, admitted: Admitted, created: int) -> None:
        self._admitted = admitted
        self._head = StreamHead(
            chat=admitted.chat,
            public_id=public_id(admitted.path, admitted.choices[0].call.rid),
            created=created,
            model=admitted.model,
            include_usage=admitted.include_usage,
            service_tier=admitted.service_tier,
            offer=offer_of(admitted.choices[0].call.body) if admitted.chat else None,
            schema_param=schema_param(admitted.choices[0].call.body),
        )
        self.writers: Sequence[StreamWriter] = [
            ChunkWriter(self._head, choice.index) for choice in admitted.choices
        ]

    async def end(self) -> bytes:
        """The usage if it is wanted, and `[DONE]`."""
        if self._admitted.include_usage:
            return self._head.usage_chunk(self._admitted.used()) + DONE_EVENT
        return DONE_EVENT

    async def fail(self, error: ApiError) -> bytes:
        """An error event, which nothing follows (rows S-16, S-17)."""
        return error_event(error)

    def refusal(self, error: ApiError) -> ApiError:
        """As it is: engines speak of the fields of these endpoints."""
        return error
