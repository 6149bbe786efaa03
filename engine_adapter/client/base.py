"""The seam between the service and an engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from api.usage import TokenUsage
from engine_adapter.client.engine_facts import EngineFacts, LiveRids
from engine_adapter.scheduling.policies.settings import Level
from engine_adapter.scheduling.request import RequestClass

CHAT_PATH = "/v1/chat/completions"
COMPLETIONS_PATH = "/v1/completions"
EMBEDDINGS_PATH = "/v1/embeddings"
RESPONSES_PATH = "/v1/responses"
"""Ours alone: what engines are asked for is a chat completion (`wire.responses`)."""

__all__ = [
    "CHAT_PATH",
    "COMPLETIONS_PATH",
    "EMBEDDINGS_PATH",
    "RESPONSES_PATH",
    "EngineCall",
    "EngineClient",
    "EngineFacts",
    "EngineReply",
    "EngineStream",
    "LiveRids",
    "RequestClass",
    "Served",
    "StreamFrame",
    "TokenUsage",
]


@dataclass
class Served:
    """What an engine has served of a call, whether or not anybody got it.

    A reply's usage is what its reader got; this is that, and what was served of calls that were
    cut, as far as the engine told. Calls made for one request may share one.

    Attributes:
        usage: Tokens.
        not_held: Fields of the body that the engine could not follow, and was not sent.
    """

    usage: TokenUsage = field(default_factory=TokenUsage)
    not_held: set[str] = field(default_factory=set)

    def add(self, usage: TokenUsage | None) -> None:
        """Count more; none where nothing is known."""
        if usage is not None:
            self.usage += usage


@dataclass(frozen=True)
class EngineCall:
    """One single-choice request to an engine; for embeddings, one input (`client.embedding`).

    Attributes:
        path: `CHAT_PATH`, `COMPLETIONS_PATH` or `EMBEDDINGS_PATH`.
        body: The caller's OpenAI body, as it came; the client adds and overwrites the private
            fields and drops every private field a caller tried to set.
        rid: Fixed-length engine request id (`engine_adapter.client.rid.new_rid`).
        request_class: Set by us, never by a caller.
        deadline_at: End of the completion window (UTC), or none.
        timeout_s: The call is given up (and aborted) after this long.
        request_id: The public id of the caller's request, for logs.
        batch_id: The batch the row belongs to, or empty: engines share fairly between batches.
        truncates: A conversation that is too long may be cut at its beginning (`shortening`).
        is_large: Encoding it is work of milliseconds, which is done beside the event loop.
        served: Written by the client: what was served, also when the call is cut or fails.
    """

    path: str
    body: Mapping[str, Any]
    rid: str
    request_class: RequestClass
    deadline_at: datetime | None = None
    timeout_s: float = 600.0
    request_id: str = ""
    batch_id: str = ""
    truncates: bool = False
    is_large: bool = False
    served: Served = field(default_factory=Served, compare=False)


@dataclass(frozen=True)
class EngineReply:
    """The whole answer to one call.

    Attributes:
        status_code: HTTP status; never a success when `body` is an error envelope.
        body: Conforming OpenAI body: our ids, legal finish reasons, the one error envelope.
        usage: Tokens used, or none for an error.
        request_id: What the call was given.
        retryable: For an error: whether sending the same call again may succeed.
        headers: For an error: headers that belong to it (`retry-after`).
        is_long: What is made of it is made beside the event loop (`long_answers`).
    """

    status_code: int
    body: dict[str, Any]
    usage: TokenUsage | None = None
    request_id: str = ""
    retryable: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    is_long: bool = False

    @property
    def ok(self) -> bool:
        """Whether the engine answered the request."""
        return self.status_code < 400


@dataclass(frozen=True)
class StreamFrame:
    """What arrived from a streamed call in one read: events already cut at their borders.

    Attributes:
        events: The JSON text of each event's data, `[DONE]` excluded, in order.
        done: The engine said `[DONE]`; no frame follows.
    """

    events: list[bytes]
    done: bool = False


class EngineStream(Protocol):
    """A streamed call whose first byte has arrived.

    Closed before its end, it aborts the engine request.
    """

    def __aiter__(self) -> AsyncIterator[StreamFrame]:
        """Frames in order; raises `EngineUnavailable` when the engine goes away."""
        ...

    async def aclose(self) -> TokenUsage | None:
        """Let go of the connection; idempotent.

        Returns:
            For an answer that was not read to its end: what the engine says it had served when it
            was aborted, or none where it does not say. It is not in the call's `served`: only the
            reader knows whether it has seen a higher count.
        """
        ...


class EngineClient(Protocol):
    """One engine. Every method raises `EngineUnavailable` when the engine cannot be reached."""

    @property
    def url(self) -> str:
        """The engine's address; its name in the registry."""
        ...

    async def call(self, call: EngineCall) -> EngineReply:
        """Run one request to its end.

        4xx and 5xx come back as a reply whose body is our error envelope. A cancelled or timed
        out call is aborted in the engine before the exception leaves; what the engine had served
        of it is in `call.served` then.

        Raises:
            EngineUnavailable: The connection was refused or lost, or the call timed out.
        """
        ...

    async def stream(self, call: EngineCall) -> EngineStream:
        """Start one streamed request; returns when the engine has accepted it.

        Raises:
            ApiError: The engine refused the request (nothing was streamed).
        """
        ...

    async def abort(self, rid: str) -> bool:
        """Ask the engine to drop a request; whether it is gone (or was never there) afterwards.

        Idempotent. Gone is read from the live ids, not from the abort's own answer.
        """
        ...

    async def live_rids(self) -> LiveRids:
        """The ids of every live request."""
        ...

    async def facts(self) -> EngineFacts:
        """What the engine says about itself; asked anew at each call."""
        ...

    async def healthy(self) -> bool:
        """Whether the engine answers its health check; never raises."""
        ...

    async def set_level(self, level: Level) -> bool:
        """Have it plan at another level from the next step on; whether it took it.

        An engine without our scheduler, or of a version that has no levels, does not.
        """
        ...

    async def profile_anew(self) -> bool:
        """Have it measure how long its steps take once more, beside its work; whether it begins.

        It plans by the profile it has until then. An engine without our scheduler does not.
        """
        ...

    async def close(self) -> None:
        """Close the connections; idempotent."""
        ...
