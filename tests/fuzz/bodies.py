"""Requests of a seed: the same number is the same request, whatever was sent before it.

Those below 0 were written by hand (`by_hand`). Most of the others are prompts: grown from the
published shapes, or what a client sends, kept in `client_requests.jsonl`, as it is or mutated. The
rest go to every other route of the document. An id of the service stands as `{file_id}` in them,
and is put in when they are sent.
"""

from __future__ import annotations

import copy
import gzip
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from pathlib import Path
from random import Random
from typing import Any, Final

from api.numbers import NUMBERS
from api.refused_fields import REFUSED_FIELDS, TAKEN_FIELDS
from engine_adapter.client.fields import CHAT_FIELDS, COMPLETION_FIELDS, EMBEDDING_FIELDS
from tests.fuzz.by_hand import REQUESTS
from tests.fuzz.values import TEXTS, Shapes, hostile, mutate

KEPT: Final = Path(__file__).with_name("client_requests.jsonl")
PROMPTS: Final[Mapping[str, str]] = {
    "/v1/chat/completions": "max_completion_tokens",
    "/v1/completions": "max_tokens",
    "/v1/responses": "max_output_tokens",
    "/v1/embeddings": "",
}
"""The routes that an engine answers, and what bounds their answers."""

ENGINE_FIELDS: Final = tuple(
    sorted(
        {number.engine for number in NUMBERS}
        | CHAT_FIELDS | COMPLETION_FIELDS | EMBEDDING_FIELDS
        | REFUSED_FIELDS.keys() | TAKEN_FIELDS.keys()
        | {"stream", "stream_options", "n", "best_of", "store", "background", "truncation", "text"}
    )
)  # fmt: skip
LONGEST: Final = 16
"""Tokens of most answers: there are many requests to send."""
BY_HAND: Final = 0.25
"""How often a request is one of those that somebody thought of."""
BOMB: Final = gzip.compress(b" " * 30_000_000)
"""Longer than a body may be, once it is unpacked."""

Batch = tuple[str, list[dict[str, Any]]]
"""An endpoint of batches and bodies of rows for it."""

_ADMIN: Final = "/v1/organization/"


@dataclass(frozen=True)
class Sent:
    """A request to send.

    Attributes:
        number: With the seed, it makes the same request again.
        template: The route, as the document names it; `path` is what is asked for.
        body: Of a JSON request, whose bytes `raw` are if it is None.
    """

    number: int
    method: str
    template: str
    path: str
    body: dict[str, Any] | None = None
    raw: bytes = b""
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def needs_admin(self) -> bool:
        return self.template.startswith(_ADMIN)

    @property
    def content(self) -> bytes:
        """What goes over the wire."""
        return self.raw if self.body is None else as_bytes(self.body)

    def with_body(self, body: dict[str, Any]) -> Sent:
        return replace(self, body=body)

    def __str__(self) -> str:
        said = self.content.decode(errors="backslashreplace")
        more = f" {dict(self.query)}" if self.query else ""
        more += f" {dict(self.headers)}" if self.headers else ""
        return f"{self.method} {self.path}{more} {said[:2000]}"


def as_bytes(body: Any) -> bytes:
    """JSON as lenient writers make it: NaN, long numbers and halves of surrogate pairs are kept."""
    return json.dumps(body).encode()


class Bodies:
    """Makes the requests of one seed.

    Args:
        document: The OpenAPI of the service that is asked.
    """

    def __init__(self, document: Mapping[str, Any], model: str, seed: int) -> None:
        self._seed = seed
        self._model = model
        kept = KEPT.read_text().replace('"MODEL"', json.dumps(model))
        self._kept = [json.loads(line) for line in kept.splitlines()]
        self._shapes = Shapes(document, _names(model))
        self._document = document
        self._routes = [
            (method.upper(), path)
            for path, methods in document["paths"].items()
            for method in methods
            if path not in PROMPTS or method != "post"
        ]

    def rounds_by_hand(self, num_requests: int) -> Iterator[tuple[list[int], Batch]]:
        """The numbers of all requests that were written by hand, and the same as a batch.

        Each is sent whole and streamed; a batch has one route.
        """
        places = range(len(REQUESTS))
        for path, found in groupby(places, lambda place: REQUESTS[place][0]):
            for some in batched(found, num_requests // 2):
                numbers = [-1 - 2 * place - streamed for place in some for streamed in (0, 1)]
                yield numbers, (path, [self._by_hand(-1 - 2 * place)[1] for place in some])

    def _by_hand(self, number: int) -> tuple[str, dict[str, Any]]:
        place, streamed = divmod(-1 - number, 2)
        path, body = REQUESTS[place]
        body = {"model": self._model, **copy.deepcopy(body)}
        return path, {**body, "stream": True} if streamed else body

    def request(self, number: int) -> Sent:
        """The request of a number."""
        if number < 0:
            path, body = self._by_hand(number)
            return Sent(number, "POST", path, path, body)
        rng = Random(f"{self._seed}-{number}")
        if rng.random() < BY_HAND:
            return replace(self.request(-rng.randint(1, 2 * len(REQUESTS))), number=number)
        if rng.random() < 0.25:
            return self._to_any_route(number, rng)
        path, body = self.prompt(rng)
        sent = Sent(number, "POST", path, path, body)
        return _mangled(sent, rng) if rng.random() < 0.05 else sent

    def rows(self, number: int, num_rows: int) -> Batch:
        """A batch beside the requests from a number on."""
        rng = Random(f"{self._seed}-rows-{number}")
        endpoint = rng.choices(tuple(PROMPTS), (5, 3, 3, 1))[0]
        by_hand = [body for path, body in REQUESTS if path == endpoint]
        rows = [self.prompt(rng, endpoint)[1] for _ in range(num_rows)]
        for place in range(num_rows):
            if rng.random() < BY_HAND:
                rows[place] = {"model": self._model, **copy.deepcopy(rng.choice(by_hand))}
        return endpoint, rows

    def prompt(self, rng: Random, path: str = "") -> tuple[str, dict[str, Any]]:
        """A route and a body for it: valid, nearly valid or hostile."""
        path = path or rng.choices(tuple(PROMPTS), (6, 4, 4, 1))[0]
        if rng.random() < 0.3:
            shape = self._document["paths"][path]["post"]["requestBody"]["content"]
            body = self._shapes.grow(shape["application/json"]["schema"], rng)
            body = body if isinstance(body, dict) else {"model": self._model, "prompt": body}
        else:
            kept = rng.choice([kept for kept in self._kept if kept["path"] == path])
            body = copy.deepcopy(kept["body"])
        for _ in range(rng.choices((0, 1, 2, 4), (3, 5, 3, 1))[0]):
            mutate(body, rng, ENGINE_FIELDS)
        limit = PROMPTS[path]
        if limit and not any(body.get(name) for name in (limit, "max_tokens")):
            body[limit] = rng.randrange(1, LONGEST)
        return path, body

    def _to_any_route(self, number: int, rng: Random) -> Sent:
        method, template = rng.choice(self._routes)
        operation = self._document["paths"][template][method.lower()]
        path = re.sub(r"\{\w+\}", lambda m: m[0] if rng.random() < 0.7 else _segment(rng), template)
        query = {
            told["name"]: str(self._shapes.grow(told.get("schema"), rng, told["name"]))
            for told in operation.get("parameters", ())
            if told["in"] == "query" and rng.random() < 0.4
        }
        sent = Sent(number, method, template, path, query=_sendable(query))
        shapes = operation.get("requestBody", {}).get("content", {})
        if "application/json" in shapes:
            body = self._shapes.grow(shapes["application/json"]["schema"], rng)
            body = body if isinstance(body, dict) else {"body": body}
            if rng.random() < 0.3:
                mutate(body, rng, ENGINE_FIELDS)
            return sent.with_body(body)
        if "multipart/form-data" in shapes:
            fields = self._shapes.grow(shapes["multipart/form-data"]["schema"], rng)
            return _form(sent, fields if isinstance(fields, dict) else {"file": fields})
        return sent


def batched(items: Iterable[int], size: int) -> Iterator[list[int]]:
    """As `itertools.batched` of newer Pythons."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


def _names(model: str) -> Mapping[str, tuple[Any, ...]]:
    return {
        "model": (model,),
        "content": TEXTS[3:6],
        "endpoint": tuple(PROMPTS),
        "completion_window": ("24h",),
        "input_file_id": ("{file_id}",),
        "previous_response_id": ("{response_id}",),
        "conversation": ("{conversation_id}",),
        "purpose": ("batch", "user_data"),
        "url": ("http://127.0.0.1:9/hook",),
        "limit": (1, 5, 20),
        "after": ("{file_id}", "{batch_id}", "nothing"),
    }


def _segment(rng: Random) -> str:
    """A hostile part of a path: percent-encoded where it must be."""
    text = str(hostile(rng))[:200].encode(errors="replace")
    return "".join(chr(b) if chr(b).isalnum() else f"%{b:02X}" for b in text) or "%20"


def _sendable(values: Mapping[str, str]) -> dict[str, str]:
    return {name: said.encode(errors="replace").decode()[:500] for name, said in values.items()}


def _form(sent: Sent, fields: Mapping[str, Any]) -> Sent:
    """The request with a form, written by hand: a client's library would mend what is odd."""
    parts = bytearray()
    for name, value in fields.items():
        said = value if isinstance(value, str) else json.dumps(value)
        title = ascii(name)[1:-1].replace('"', "%22")
        kind = '; filename="a.jsonl"' if name in ("file", "data") else ""
        parts += f'--edge\r\nContent-Disposition: form-data; name="{title}"{kind}\r\n\r\n'.encode()
        parts += said.encode(errors="replace") + b"\r\n"
    headers = {"content-type": "multipart/form-data; boundary=edge"}
    return replace(sent, raw=bytes(parts) + b"--edge--\r\n", headers=headers)


def _mangled(sent: Sent, rng: Random) -> Sent:
    """The request with bytes that are no JSON, or not what its headers say."""
    said = sent.content
    at = rng.randrange(len(said))
    packed = gzip.compress(said)
    raw, headers = rng.choice(
        (
            (said[:at], {}),
            (said[:at] + bytes([rng.randrange(256)]) + said[at:], {}),
            (b"\xef\xbb\xbf" + said, {}),
            (b"[" * 50_000 + b"]" * 50_000, {}),
            (b'{"messages":' * 5_000, {}),
            (said[:-1] + b"," + said[1:], {}),
            (b"", {}),
            (b"null", {}),
            (said, {"content-type": "text/plain"}),
            (said, {"content-type": "application/json; charset=utf-16"}),
            (packed, {"content-encoding": "gzip"}),
            (packed[:at], {"content-encoding": "gzip"}),
            (BOMB, {"content-encoding": "gzip"}),
            (said, {"content-encoding": "zstd"}),
        )
    )
    return replace(sent, body=None, raw=raw, headers=headers)
