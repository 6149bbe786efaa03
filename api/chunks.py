"""From an engine's stream events to conforming chunks.

One writer per choice. The parts of a chunk that never change are built once, as bytes; a chunk of
plain text, which nearly every chunk is, costs a look at its shape (`TextShape`) and two
concatenations.

What the engine sends for a choice, and what leaves here::

    role, content ""     →  role chunk
    content "…"          →  content chunk              (usage noted and left out)
    content, with tools  →  content or tool-call chunk (`api.tool_calls`)
    finish "stop"        →  finish chunk, delta {}     exactly one
    finish "abort"       →  StreamFailed
    choices [], usage    →  nothing                    (usage noted)
    error                →  StreamFailed
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from api.engine_errors import NO_TOOLS, UNREADABLE, aborted, from_stream_error
from api.errors import ApiError, RequestFailedAlone, error_body
from api.json_output import dump, one_line
from api.logprobs import CompletionLogprobs, chat_logprobs
from api.replies import EngineAborted, finish_reason_of, text_of, thoughts_of, usage_of
from api.tool_calls import StreamedCalls, ToolOffer
from api.usage import TokenUsage

DONE_EVENT = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
_USAGE: Final = b',"usage":'
_EMPTY: Final = b'""'
_MORE_THAN_TEXT = ("tool_calls", "function_call", "reasoning_content")


class TextShape:
    """The shape of the last text chunk that was parsed.

    Nearly all chunks of a stream differ in one string alone:

        {"id":…,"choices":[{"delta":{"content": "text" },"logprobs":null,…}],"usage": {…}}
        └──────────────── head ───────────────┘      └──────────── tail ────────────┘

    Head and tail are learned from a chunk that was parsed and judged. A chunk that has both and one
    plain JSON string in between says the same as that one, but for its text: the string is cut out
    as it is. Everything else (another second in `created`, an escape in the text, a finish reason)
    is parsed, and learned from.

    Invariant: `_head` ends where the text's string begins, and `_tail` begins where it ends.

    Args:
        key: The text's key in the chunk: `content` or `text`.
    """

    __slots__ = ("_event", "_head", "_key", "_tail")

    def __init__(self, key: str) -> None:
        self._key = f'"{key}":'.encode()
        self._head = self._tail = b""
        self._event: bytes | None = None

    def learn(self, event: bytes, text: str) -> None:
        """Take the shape of an event that was found to say nothing but `text`."""
        self._head = b""
        literal = orjson.dumps(text)
        before, _, after = event.partition(self._key + literal)
        tail, usage, _ = after.partition(_USAGE)
        # Not where the key or the usage's could be part of something else.
        if usage and event.count(self._key) == 1 and after.count(_USAGE) == 1:
            self._head, self._tail = before + self._key, tail + usage

    def text_of(self, event: bytes) -> bytes | None:
        """The JSON string of an event of this shape, empty for no text; none if it is another."""
        head = self._head
        if not head or not event.startswith(head):
            return None
        begin = len(head)
        end = event.find(self._tail, begin)
        if end < 0:
            return None
        literal = event[begin:end]
        if literal[:1] != b'"' or literal[-1:] != b'"' or literal.count(b'"') != 2:
            return None
        if b"\\" in literal:
            return None
        self._event = event
        return b"" if literal == _EMPTY else one_line(literal)

    def take_usage(self) -> Mapping[str, Any] | None:
        """Usage from the last event of this shape, returned once; None if there is nothing new."""
        event, self._event = self._event, None
        if event is None:
            return None
        try:
            found: Mapping[str, Any] | None = orjson.loads(event).get("usage")
        except orjson.JSONDecodeError:
            return None
        return found


class StreamFailed(Exception):
    """The engine's stream ended in an error; the caller is told by an error event."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


def event_of(body: Any) -> bytes:
    """One server-sent event (row S-02: JSON has no raw newline)."""
    return b"data: " + dump(body) + b"\n\n"


def error_event(error: ApiError) -> bytes:
    """The error event in the middle of a stream (row S-16)."""
    return event_of(error_body(error))


class StreamHead:
    """What all chunks of one reply share (row S-04).

    `offer` is what the caller said of its tools (`tool_calls.offer_of`); `only_sampled`, that a
    completion was asked for the log probabilities of no other tokens.
    """

    __slots__ = (
        "chat", "choices", "end", "include_usage", "offer",
        "only_sampled", "schema_param", "tool_params", "usage_head",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913
        self,
        *,
        chat: bool,
        public_id: str,
        created: int,
        model: str,
        include_usage: bool,
        service_tier: str | None = None,
        offer: ToolOffer | None = None,
        schema_param: str = "response_format",
        tool_params: Mapping[str, str] = NO_TOOLS,
        only_sampled: bool = False,
    ) -> None:
        head: dict[str, Any] = {
            "id": public_id,
            "object": "chat.completion.chunk" if chat else "text_completion",
            "created": created,
            "model": model,
        }
        if service_tier is not None:
            head["service_tier"] = service_tier
        opened = b"data: " + dump(head)[:-1]
        self.chat = chat
        self.offer = offer
        self.schema_param = schema_param
        self.tool_params = tool_params
        self.only_sampled = only_sampled
        self.include_usage = include_usage
        self.choices = opened + b',"choices":[{"index":'
        # Every chunk but the last says `usage: null` if the caller asked for usage (row S-09),
        # and none has the key if not (row S-10).
        self.end = b'}],"usage":null}\n\n' if include_usage else b"}]}\n\n"
        self.usage_head = opened + b',"choices":[],"usage":'

    def usage_chunk(self, usage: TokenUsage) -> bytes:
        """The extra chunk before `[DONE]`."""
        return self.usage_head + dump(usage.as_wire()) + b"}\n\n"


class ChunkWriter:
    """Rewrites the events of one choice.

    Attributes:
        finished: A finish reason has been sent; nothing of this choice follows.
        num_texts: Chunks so far that said something: text, a tool call, probabilities.
    """

    __slots__ = (
        "_begin", "_calls", "_end", "_head", "_logprobs",
        "_shape", "_started", "_text", "_usage", "finished", "num_texts",
    )  # fmt: skip

    def __init__(self, head: StreamHead, index: int) -> None:
        self._head = head
        self._started = False
        self._logprobs = CompletionLogprobs(only_sampled=head.only_sampled)
        self._usage: Mapping[str, Any] | None = None
        self.finished = False
        self.num_texts = 0
        self._calls = StreamedCalls(head.offer) if head.offer is not None else None
        self._shape = TextShape("content" if head.chat else "text")
        self._begin = head.choices + str(index).encode()
        self._text = self._begin + (b',"delta":{"content":' if head.chat else b',"text":')
        closed = b"}" if head.chat else b""
        self._end = closed + b',"logprobs":null,"finish_reason":null' + head.end

    @property
    def usage(self) -> TokenUsage:
        """Tokens so far, as the engine last counted them."""
        self._usage = self._shape.take_usage() or self._usage
        return usage_of(self._usage)

    def feed(self, event: bytes) -> bytes:
        """What one event of the engine becomes; perhaps nothing.

        Raises:
            StreamFailed: The engine reports an error, dropped the request or makes no sense.
        """
        literal = self._shape.text_of(event)
        if literal is not None:
            if not literal or self.finished:
                return b""
            self.num_texts += 1
            return self._text + literal + self._end
        try:
            parsed = orjson.loads(event)
            noted = self._shape.take_usage()
            self._usage = parsed.get("usage") or noted or self._usage
            choices = parsed.get("choices")
            if not choices:
                if "error" in parsed:
                    raise StreamFailed(
                        from_stream_error(
                            parsed["error"],
                            prompt_param=self._prompt_param(),
                            schema_param=self._head.schema_param,
                            tool_params=self._head.tool_params,
                        )
                    )
                return b""
            if self.finished:
                return b""
            write = self._chat if self._head.chat else self._completion
            return write(choices[0], event)
        except EngineAborted:
            raise StreamFailed(aborted()) from None
        except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError) as error:
            raise StreamFailed(RequestFailedAlone(UNREADABLE)) from error

    def _prompt_param(self) -> str:
        return "messages" if self._head.chat else "prompt"

    def _chat(self, choice: dict[str, Any], event: bytes) -> bytes:
        delta = choice["delta"]
        if delta.get("reasoning"):
            delta = {**delta, "reasoning_content": thoughts_of(delta)}
        finish = finish_reason_of(choice.get("finish_reason"))
        out = b""
        if not self._started:
            self._started = True
            offer = self._head.offer
            content = "" if offer is None or offer.forced is None else None
            out = self._chunk({"role": "assistant", "content": content, "refusal": None})
        logprobs = choice.get("logprobs")
        if self._calls is not None:
            delta, finish = self._calls.rewrite(delta, finish)
            logprobs = self._calls.logprobs(delta, logprobs, finish)
        text = text_of(delta.get("content"))
        if logprobs is None and not any(map(delta.get, _MORE_THAN_TEXT)):
            if text:
                self.num_texts += 1
                out += self._text + dump(text) + self._end
                if finish is None and self._calls is None:
                    self._shape.learn(event, text)
        else:
            self.num_texts += 1
            # Tokens without a text of their own have their log probabilities beside no text.
            out += self._chunk(_delta_of(delta) or {"content": ""}, chat_logprobs(logprobs))
        if finish is not None:
            self.finished = True
            out += self._chunk({}, None, finish)
        return out

    def _completion(self, choice: dict[str, Any], event: bytes) -> bytes:
        text = text_of(choice.get("text")) or ""
        logprobs = choice.get("logprobs")
        finish = finish_reason_of(choice.get("finish_reason"))
        self.num_texts += bool(text)
        if finish is None and logprobs is None:
            if not text:
                return b""
            self._shape.learn(event, text)
            return self._text + dump(text) + self._end
        self.finished = finish is not None
        said = self._logprobs.of(logprobs)
        rest = {"text": text, "logprobs": said, "finish_reason": finish}
        return self._begin + b"," + dump(rest)[1:-1] + self._head.end

    def _chunk(self, delta: Any, logprobs: Any = None, finish: str | None = None) -> bytes:
        rest = {"delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return self._begin + b"," + dump(rest)[1:-1] + self._head.end


def _delta_of(delta: Mapping[str, Any]) -> dict[str, Any]:
    """A delta without the engine's nulls (row S-12: tool calls keep their index)."""
    cleaned: dict[str, Any] = {}
    for name in ("content", "reasoning_content", "function_call"):
        if delta.get(name):
            cleaned[name] = delta[name]
    if delta.get("tool_calls"):
        cleaned["tool_calls"] = [
            {key: value for key, value in call.items() if value is not None}
            for call in delta["tool_calls"]
        ]
    return cleaned
