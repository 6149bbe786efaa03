"""Where responses and conversations are kept: what a request goes on from, and what it leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar

import orjson
from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_shapes import may_be_id
from api.errors import InvalidRequest, NotFound, Overloaded
from api.json_output import dump, dump_long
from api.responses.items import Item, is_reference, listed, packed, unpacked
from api.responses.request import conversation_id
from api.responses.resource import TERMINAL
from batch.intake.project_limits import check_storage
from engine_adapter.client.rid import new_rid
from gateway.http.parsing import BRIEF_BYTES, Parsing
from store.failures import AWAY, why_away
from store.models import StoredResponse
from store.repositories import conversation as conversations
from store.repositories import response as responses
from store.repositories.response import NewResponse, Size, Turn
from store.session import Database

MAX_HISTORY: Final = Size(num_items=20_000, num_bytes=16 * 1024 * 1024)
"""What a request may go on from: asked of the database before anything is read."""

FEW_ITEMS: Final = 200
"""So many are read, and made messages, where they are; more beside the event loop."""

FEW_TOKENS: Final = 200
"""An answer of so many is written where it is; with log probabilities, two kilobytes each."""

T = TypeVar("T")


@dataclass(frozen=True)
class Context:
    """What a response is made of.

    Attributes:
        earlier: Items of the conversation or of the responses it goes on from, the oldest first.
            Whoever makes messages of them empties it (`let_go`): there may be 20,000.
        own: Items of its own input, references replaced by what they name.
        is_large: They are many, or long, or the body that asks is.
    """

    earlier: list[Item]
    own: Sequence[Item]
    is_large: bool = False


@dataclass(frozen=True)
class _Own:
    """Items of an input, and the bytes that storing them takes."""

    items: Sequence[Item]
    num_bytes: int
    has_references: bool


class ResponseStore:
    """The stored responses and conversations of one project; large ones are read aside."""

    def __init__(
        self, database: Database, parsing: Parsing, project_id: str, lifetime: timedelta
    ) -> None:
        self._database = database
        self._parsing = parsing
        self._project_id = project_id
        self._lifetime = lifetime

    async def context(self, body: Mapping[str, Any], *, is_brief: bool) -> Context:
        """Everything that a checked body goes on from.

        Args:
            body: The body.
            is_brief: It came in few bytes.

        Raises:
            NotFound: The response, conversation or item it names is not there (any more).
            InvalidRequest: That is more than `MAX_HISTORY`.
            StorageQuotaExceeded: It wants to be stored, and the project may store no more.
        """
        given = body.get("input") or []
        own = await self._aside(partial(_own_of, given), is_large=not is_brief)
        size = Size(len(own.items), own.num_bytes)
        previous, named = body.get("previous_response_id"), conversation_id(body)
        if body.get("store") is not False or named is not None:
            # The answer to come is never refused, whatever its size: only a next one is.
            async with self._database.unit_of_work() as session:
                await check_storage(session, self._project_id, own.num_bytes)
        if previous is None and named is None and not own.has_references:
            return Context([], own.items, not is_brief)
        async with self._database.snapshot() as session:
            earlier: list[Item] = []
            if previous is not None:
                earlier, before = await self._chain(session, previous)
                size += before
            elif named is not None:
                earlier, before = await self._conversation(session, named)
                size += before
            items = own.items
            if own.has_references:
                items = await self._resolved(session, items, earlier)
            if not items and not earlier:
                raise InvalidRequest("The input has no items.", param="input")
            return Context(earlier, items, not is_brief or is_large(size))

    async def keep(
        self, body: Mapping[str, Any], context: Context, response: Mapping[str, Any]
    ) -> None:
        """Store a response that has ended, as its body wants it, in one transaction.

        Raises:
            Overloaded: The database is of no use at the moment.
        """
        named = conversation_id(body)
        stored = body.get("store") is not False
        if not stored and named is None:
            return
        try:
            async with self._database.unit_of_work() as session:
                if stored:
                    await self.add(session, context, response)
                if named is not None and response["status"] != "failed":
                    conversation = await conversations.get(
                        session, self._project_id, named, lock=True
                    )
                    if conversation is not None:  # else it was deleted while this was made
                        kept = await self._aside(
                            partial(packed, [*context.own, *response["output"]]),
                            is_large=context.is_large or _is_long(response),
                        )
                        await conversations.append(session, conversation, kept, self._lifetime)
        except AWAY as error:
            raise Overloaded(
                f"The response could not be stored: the database {why_away(error)}.",
                code="database_unavailable",
            ) from error

    async def add(
        self, session: AsyncSession, context: Context, response: Mapping[str, Any]
    ) -> None:
        """Store a response alone, in the caller's transaction."""
        is_large = context.is_large or _is_long(response)
        row = await self._aside(partial(_row, context.own, response), is_large=is_large)
        await responses.add(session, self._project_id, row, self._lifetime)

    async def _aside(self, work: Callable[[], T], *, is_large: bool) -> T:
        return await self._parsing.run(self._project_id, work, is_large=is_large)

    async def _chain(self, session: AsyncSession, response_id: str) -> tuple[list[Item], Size]:
        turns: Sequence[Turn] = []
        size = Size(0, 0)
        if may_be_id(response_id):
            size = await responses.chain_size(session, self._project_id, response_id)
            _check_history(size, "previous_response_id")
            turns = await responses.chain(session, self._project_id, response_id)
        lost = turns[0].previous_response_id if turns else response_id
        if lost is not None:
            raise NotFound(
                f"Previous response with id '{lost[:64]}' not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        return await self._aside(partial(_items_of, turns), is_large=is_large(size)), size

    async def _conversation(self, session: AsyncSession, named: str) -> tuple[list[Item], Size]:
        found = None
        if may_be_id(named):
            found = await conversations.get(session, self._project_id, named)
        if found is None:
            raise NotFound(f"Conversation with id '{named[:64]}' not found.", param="conversation")
        size = await conversations.size(session, found)
        _check_history(size, "conversation")
        kept = await conversations.items(session, found)
        items = await self._aside(lambda: [*map(orjson.loads, kept)], is_large=is_large(size))
        return items, size

    async def _resolved(
        self, session: AsyncSession, own: Sequence[Item], earlier: Sequence[Item]
    ) -> list[Item]:
        """Own items, references replaced; one to an item that is there already adds nothing."""
        present = {item["id"] for item in earlier}
        wanted = {item["id"] for item in own if is_reference(item)} - present
        known: dict[str, Item] = {}
        clean = [one for one in wanted if "\0" not in one]
        if clean:
            holders, size = await responses.holders(session, self._project_id, clean)
            _check_history(size, "input")
            newest_first = await responses.among(session, self._project_id, holders)
            known = await self._aside(partial(items_by_id, newest_first), is_large=is_large(size))
        items = []
        for place, item in enumerate(own):
            if not is_reference(item):
                items.append(item)
            elif item["id"] not in present:
                if item["id"] not in known:
                    raise NotFound(
                        f"Item with id '{item['id'][:64]}' not found.", param=f"input[{place}].id"
                    )
                items.append(known[item["id"]])
        return items


def is_large(size: Size) -> bool:
    """Whether reading so much, or making messages of it, is done beside the event loop."""
    return size.num_items > FEW_ITEMS or size.num_bytes > BRIEF_BYTES


def _is_long(response: Mapping[str, Any]) -> bool:
    """Whether writing an answer, which may have log probabilities, takes long."""
    return ((response.get("usage") or {}).get("output_tokens") or 0) > FEW_TOKENS


def _own_of(given: str | Sequence[Item]) -> _Own:
    """The items of an input."""
    own = listed(given, new_rid())
    return _Own(own, len(dump(own)), any(map(is_reference, own)))


def _items_of(turns: Sequence[Turn]) -> list[Item]:
    """The items of responses that follow each other, the oldest first.

    Raises:
        InvalidRequest: One of them has not ended.
    """
    earlier: list[Item] = []
    for turn in turns:
        body = orjson.loads(turn.body)
        if body["status"] not in TERMINAL:
            raise InvalidRequest(
                f"The response '{turn.id}' has not ended yet.",
                param="previous_response_id",
                code="previous_response_not_completed",
            )
        earlier += unpacked(turn.input_items)
        earlier += body["output"]
    return earlier


def _check_history(size: Size, param: str) -> None:
    if size.num_items <= MAX_HISTORY.num_items and size.num_bytes <= MAX_HISTORY.num_bytes:
        return
    raise InvalidRequest(
        f"This request goes on from {size.num_items:,} items of {size.num_bytes:,} bytes; at most "
        f"{MAX_HISTORY.num_items:,} items of {MAX_HISTORY.num_bytes:,} bytes are possible. "
        "Please begin a new conversation.",
        param=param,
        code="history_too_long",
    )


def items_of(response: StoredResponse) -> list[Item]:
    """The items of a response's own input and of its output."""
    return unpacked(response.input_items) + list(orjson.loads(response.body)["output"])


def items_by_id(newest_first: Sequence[StoredResponse]) -> dict[str, Item]:
    """The items of responses; where several hold one of the same id, the newest response's."""
    return {item["id"]: item for one in reversed(newest_first) for item in items_of(one)}


def _row(own: Sequence[Item], response: Mapping[str, Any]) -> NewResponse:
    ids = [item["id"] for item in (*own, *response["output"])]
    return NewResponse(
        id=response["id"],
        previous_response_id=response["previous_response_id"],
        body=dump_long(response),
        input_items=dump(own),
        item_ids=[one for one in ids if "\0" not in one],
    )
