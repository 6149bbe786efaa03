"""One trace from the caller through gateway and dispatcher to the engine, as OTLP has it."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import orjson
import pytest

from tests.fixtures.installation import Installation

pytest.importorskip("opentelemetry.sdk", reason="make setup-dev installs the SDK")

pytestmark = pytest.mark.thorough

CANARY = "zq9-the-prompt-nobody-else-may-see"
TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
PATIENCE_S = 60


@dataclass(frozen=True)
class Seen:
    """One span as it arrived."""

    name: str
    trace: str
    span: str
    parent: str
    part: str
    facts: dict[str, str]


@dataclass
class Receiver:
    """OTLP over HTTP, as a collector speaks it."""

    url: str = ""
    raw: list[bytes] = field(default_factory=list)

    def spans(self) -> list[Seen]:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        found = []
        for body in [*self.raw]:
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                about = {one.key: one.value.string_value for one in group.resource.attributes}
                for scope in group.scope_spans:
                    for one in scope.spans:
                        facts = {a.key: str(a.value).strip() for a in one.attributes}
                        ids = (one.trace_id.hex(), one.span_id.hex(), one.parent_span_id.hex())
                        found.append(Seen(one.name, *ids, about["service.instance.id"], facts))
        return found

    async def until(self, names: list[str], trace: str) -> dict[str, list[Seen]]:
        """The spans of a trace by name, once there are so many of each."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                mine = [one for one in self.spans() if one.trace == trace]
                if sorted(one.name for one in mine) == sorted(names):
                    return {name: [one for one in mine if one.name == name] for name in names}
                await asyncio.sleep(0.05)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    made = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            zipped = self.headers.get("content-encoding") == "gzip"
            assert self.path == "/v1/traces"
            made.raw.append(gzip.decompress(body) if zipped else body)
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


async def test_a_chat_and_a_batch_are_one_trace_each(
    receiver: Receiver, installation: Installation
) -> None:
    model = "fake-model"
    chat = {"model": model, "messages": [{"role": "user", "content": CANARY}]}
    headers = {"authorization": f"Bearer {installation.admin_key}"}
    traced = {**headers, "traceparent": f"00-{TRACE}-{CALLER}-01"}
    async with httpx.AsyncClient(base_url=f"{installation.url}/v1", timeout=60) as http:
        reply = await http.post("/chat/completions", json=chat, headers=traced)
        assert reply.status_code == 200
        names = ["POST /chat/completions", "engine call"]
        spans = await receiver.until(names, TRACE)
        (server,), (call,) = (spans[name] for name in names)
        assert (server.parent, server.part) == (CALLER, "gateway")
        assert reply.headers["x-request-id"] in server.facts["coserve.request_id"]
        assert call.parent == server.span
        assert f"00-{TRACE}-{call.span}-01" in installation.engine.traceparents

        streamed = TRACE[::-1]
        traced["traceparent"] = f"00-{streamed}-{CALLER}-01"
        body = chat | {"stream": True}
        assert (await http.post("/chat/completions", json=body, headers=traced)).status_code == 200
        await receiver.until(["POST /chat/completions", "engine stream"], streamed)

        rows = [
            {"custom_id": f"r{n}", "method": "POST", "url": "/v1/chat/completions", "body": chat}
            for n in range(2)
        ]
        file = {"file": ("in.jsonl", b"\n".join(map(orjson.dumps, rows)))}
        sent = await http.post("/files", data={"purpose": "batch"}, files=file, headers=headers)
        batch = {
            "input_file_id": sent.json()["id"],
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
        }
        of_batch = "1" * 32
        traced["traceparent"] = f"00-{of_batch}-{CALLER}-01"
        made = (await http.post("/batches", json=batch, headers=traced)).json()
    names = ["POST /batches", "row", "row", "engine call", "engine call"]
    spans = await receiver.until(names, of_batch)
    (server,) = spans["POST /batches"]
    assert {one.parent for one in spans["row"]} == {server.span}
    assert {one.part for one in spans["row"]} == {"worker-dispatch"}
    assert all(made["id"] in one.facts["coserve.batch_id"] for one in spans["row"])
    assert {one.parent for one in spans["engine call"]} == {one.span for one in spans["row"]}
    assert all(CANARY.encode() not in body for body in receiver.raw)
    assert f"trace_id={TRACE}" in installation.log.read_text()
