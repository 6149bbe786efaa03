"""The typed events of a streamed response, in the documented order.

    response.created, [response.queued,] response.in_progress
      response.output_item.added
        response.content_part.added                 a message, or thoughts
          response.output_text.delta …              response.reasoning_text.delta …
          response.output_text.done                 response.reasoning_text.done
        response.content_part.done
        response.function_call_arguments.delta …    a call
        response.function_call_arguments.done
      response.output_item.done
    response.completed | response.incomplete | response.failed

Each has the next number of the stream. A response that is stored is told again by the same events,
each text in one piece (`retold`), so numbers mean the same in every telling of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from api.errors import ApiError
from api.json_output import dump, dump_long
from api.responses.items import Item
from api.responses.output import assistant_message, function_call, reasoning, text_part
from api.responses.resource import RESPONSE_PREFIX, TERMINAL, Ending, ResponseDraft

Event = dict[str, Any]
NAME_KEYS: tuple[str, ...] = ("name", "namespace")


def event_bytes(events: Iterable[Event]) -> bytes:
    """Server-sent events, each under its type."""
    return b"".join(
        b"event: %b\ndata: %b\n\n"
        % (event["type"].encode(), dump(event) if "delta" in event else dump_long(event))
        for event in events
    )


class ResponseTeller:
    """Tells the making of one response, event by event.

    Invariants: at most one item is open, and it is the next of the draft's output; `_pieces` and
    `_tokens` are what was told of its text or arguments.
    """

    __slots__ = ("_call", "_draft", "_item", "_number", "_pieces", "_tokens")

    def __init__(self, draft: ResponseDraft, *, number: int = 0) -> None:
        self._draft = draft
        self._number = number
        self._item: Item | None = None
        self._call: int | None = None
        self._pieces: list[str] = []
        self._tokens: list[Item] = []

    @property
    def nothing_yet(self) -> bool:
        """Whether no item has begun."""
        return self._item is None and not self._draft.output

    def state(self, status: str, kind: str | None = None) -> Event:
        """That the response is queued or in progress; `created` is told so too."""
        return self._event(f"response.{kind or status}", response=self._draft.at(status))

    def text(self, delta: str, tokens: list[Item]) -> Iterator[Event]:
        """More text of the answer, and its tokens' log probabilities if they are wanted."""
        yield from self._in("message")
        self._pieces.append(delta)
        self._tokens += tokens
        yield self._of_part("response.output_text.delta", delta=delta, logprobs=tokens)

    def end_tokens(self, tokens: list[Item]) -> None:
        """Tokens after the last text: the end of it tells their log probabilities."""
        if self.nothing_yet or (self._item is not None and self._item["type"] == "message"):
            self._tokens += tokens

    def thought(self, delta: str) -> Iterator[Event]:
        """More of the model's thoughts."""
        yield from self._in("reasoning")
        self._pieces.append(delta)
        yield self._of_part("response.reasoning_text.delta", delta=delta)

    def call(self, index: int, call_id: str, named: Mapping[str, str]) -> Iterator[Event]:
        yield from self.close("completed")
        self._call = index
        yield from self._open(function_call(call_id, named, ""))

    def arguments(self, index: int, delta: str) -> Iterator[Event]:
        """More of the arguments of the call that is open."""
        if self._item is None or self._call != index:
            raise LookupError("arguments of a call that is not open")
        self._pieces.append(delta)
        yield self._of_item("response.function_call_arguments.delta", delta=delta)

    def close(self, status: str) -> Iterator[Event]:
        """The open item ends, if there is one."""
        item = self._item
        if item is None:
            return
        whole = "".join(self._pieces)
        if item["type"] == "function_call":
            item["arguments"] = whole
            yield self._of_item(
                "response.function_call_arguments.done", name=item["name"], arguments=whole
            )
        elif item["type"] == "message":
            part = text_part(whole, self._tokens)
            item["content"] = [part]
            yield self._of_part("response.output_text.done", text=whole, logprobs=self._tokens)
            yield self._of_part("response.content_part.done", part=part)
        else:
            (part,) = item["content"] = reasoning(whole)["content"]
            yield self._of_part("response.reasoning_text.done", text=whole)
            yield self._of_part("response.content_part.done", part=part)
        item["status"] = status
        yield self._of_place("response.output_item.done", item=item)
        self._draft.output.append(item)
        self._item, self._call, self._pieces, self._tokens = None, None, [], []

    def end(self, ending: Ending) -> Iterator[Event]:
        if self.nothing_yet:
            yield from self._in("message")
        yield from self.close(ending.status)
        yield self.final(self._draft.ended(ending))

    def fail(self, error: ApiError) -> Event:
        """The answer could not be made."""
        return self.final(self._draft.failed(error))

    def final(self, response: Mapping[str, Any]) -> Event:
        """The last event: the response as it ended; a cancelled one has no kind of its own."""
        status = response["status"]
        kind = "incomplete" if status == "cancelled" else status
        return self._event(f"response.{kind}", response=response)

    def retell(self, item: Item) -> Iterator[Event]:
        """A finished item, its text or arguments in one piece."""
        if item["type"] == "function_call":
            named: dict[str, str] = {key: item[key] for key in NAME_KEYS if key in item}
            yield from self.call(0, item["call_id"], named)
            if item["arguments"]:
                yield from self.arguments(0, item["arguments"])
        else:
            (part,) = item["content"]
            yield from self._in(item["type"])
            if not part["text"]:
                pass
            elif item["type"] == "message":
                yield from self.text(part["text"], part["logprobs"])
            else:
                yield from self.thought(part["text"])
        yield from self.close(item["status"])

    def _in(self, kind: str) -> Iterator[Event]:
        """An item of this kind is open afterwards, with one content part."""
        if self._item is not None and self._item["type"] == kind:
            return
        yield from self.close("completed")
        opened = assistant_message([]) if kind == "message" else reasoning("")
        part = text_part("", []) if kind == "message" else opened["content"][0]
        yield from self._open({**opened, "content": []})
        yield self._of_part("response.content_part.added", part=part)

    def _open(self, item: Item) -> Iterator[Event]:
        place = len(self._draft.output)
        self._item = {"id": self._draft.item_id(item["type"], place), **item}
        # A copy: the item is written to when it is closed.
        yield self._of_place("response.output_item.added", item=dict(self._item))

    def _of_part(self, kind: str, **more: Any) -> Event:
        return self._of_item(kind, content_index=0, **more)

    def _of_item(self, kind: str, **more: Any) -> Event:
        assert self._item is not None
        return self._of_place(kind, item_id=self._item["id"], **more)

    def _of_place(self, kind: str, **more: Any) -> Event:
        return self._event(kind, output_index=len(self._draft.output), **more)

    def _event(self, kind: str, **more: Any) -> Event:
        event = {"type": kind, "sequence_number": self._number, **more}
        self._number += 1
        return event


class _Told(ResponseDraft):
    """A response that has ended, as it was while it was made."""

    def _head(self, status: str) -> dict[str, Any]:
        unset = dict.fromkeys(("completed_at", "error", "incomplete_details"))
        return {**self.body, **unset, "status": status}


def retold(response: Mapping[str, Any]) -> Iterator[Event]:
    """The events of a stored response so far, each text in one piece."""
    draft = _Told(response, response["id"].removeprefix(RESPONSE_PREFIX), response["created_at"])
    teller = ResponseTeller(draft)
    yield teller.state("queued" if response["background"] else "in_progress", "created")
    if response["background"]:
        yield teller.state("queued")
    if response["status"] == "queued":
        return
    yield teller.state("in_progress")
    if response["status"] not in TERMINAL:
        return
    for item in response["output"]:
        yield from teller.retell(item)
    yield teller.final(response)
