"""From an engine's stream events to the events of a response."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from api.chunks import StreamFailed
from api.engine_errors import (
    UNREADABLE,
    aborted,
    from_stream_error,
    schema_param,
    tool_params,
)
from api.errors import ApiError, RequestFailedAlone
from api.logprobs import chat_logprobs
from api.replies import EngineAborted, finish_reason_of, text_of, usage_of
from api.responses.events import Event, ResponseTeller, event_bytes
from api.responses.output import logprobs
from api.responses.resource import Ending, ResponseDraft
from api.responses.tools import called
from api.tool_calls import StreamedCalls, ToolOffer
from api.usage import TokenUsage

NO_CHAT: Final[Mapping[str, Any]] = {}


class ResponseWriter:
    """Rewrites the events of the one chat call that makes a response.

    Attributes:
        finished: The engine has given a finish reason.
        num_texts: Engine events so far that brought something of the answer.
    """

    def __init__(
        self, draft: ResponseDraft, offer: ToolOffer | None, chat: Mapping[str, Any] = NO_CHAT
    ) -> None:
        """`chat` is the body of the chat call, and `offer` what it says of tools."""
        self._draft = draft
        self._chat = chat
        self._teller = ResponseTeller(draft)
        self._calls = StreamedCalls(offer) if offer is not None else None
        self._usage: Mapping[str, Any] | None = None
        self._begun = False
        self._finish = ""
        self._tokens: list[Mapping[str, Any]] = []  # whose text is still to come
        self.num_texts = 0

    @property
    def finished(self) -> bool:
        return bool(self._finish)

    @property
    def usage(self) -> TokenUsage:
        """Tokens so far, as the engine last counted them."""
        return usage_of(self._usage)

    def feed(self, event: bytes) -> bytes:
        """What one event of the engine becomes; perhaps nothing.

        Raises:
            StreamFailed: The engine reports an error, dropped the request or makes no sense.
        """
        try:
            parsed = orjson.loads(event)
            self._usage = parsed.get("usage") or self._usage
            choices = parsed.get("choices")
            if not choices:
                if "error" in parsed:
                    raise StreamFailed(self._error(parsed["error"]))
                return b""
            return b"" if self._finish else event_bytes(self._events(choices[0]))
        except EngineAborted:
            raise StreamFailed(aborted()) from None
        except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError) as error:
            raise StreamFailed(RequestFailedAlone(UNREADABLE)) from error

    def _error(self, said: Any) -> ApiError:
        schema, tools = schema_param(self._chat), tool_params(self._chat)
        return from_stream_error(said, prompt_param="input", schema_param=schema, tool_params=tools)

    def end(self, completed_at: int) -> tuple[bytes, dict[str, Any]]:
        """The last events, and the response they tell of."""
        *events, last = self._teller.end(Ending(self._finish, self.usage, completed_at))
        return event_bytes([*events, last]), last["response"]

    def fail(self, error: ApiError) -> tuple[bytes, dict[str, Any]]:
        """The last events of an answer that could not be made, and the response they tell of."""
        begun = [*self._begin()]
        last = self._teller.fail(error)
        return event_bytes([*begun, last]), last["response"]

    def _begin(self) -> Iterator[Event]:
        if not self._begun:
            self._begun = True
            yield self._teller.state("in_progress", "created")
            yield self._teller.state("in_progress")

    def _events(self, choice: Mapping[str, Any]) -> Iterator[Event]:
        delta = choice["delta"]
        finish = finish_reason_of(choice.get("finish_reason"))
        yield from self._begin()
        said = choice.get("logprobs")
        if self._calls is not None:
            delta, finish = self._calls.rewrite(delta, finish)
            said = self._calls.logprobs(delta, said, finish)
        if delta.get("content") or delta.get("reasoning_content") or delta.get("tool_calls"):
            self.num_texts += 1
        if thought := text_of(delta.get("reasoning_content")):
            yield from self._teller.thought(thought)
        if self._draft.logprobs:
            self._tokens += (chat_logprobs(said) or {}).get("content") or ()
        if text := text_of(delta.get("content")):
            tokens, self._tokens = self._tokens, []
            yield from self._teller.text(text, logprobs(tokens))
        elif finish is not None:
            self._teller.end_tokens(logprobs(self._tokens))
        for call in delta.get("tool_calls") or ():
            function = call["function"]
            if function.get("name"):
                named = called(self._draft.body, function["name"])
                yield from self._teller.call(call["index"], call["id"], named)
            if arguments := text_of(function.get("arguments")):
                yield from self._teller.arguments(call["index"], arguments)
        self._finish = finish or ""
