"""Discovery against a small HTTP server that speaks as the API of Kubernetes does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from gateway.engines.discovery import (
    MAX_PAGES,
    EngineDiscovery,
    KubernetesApi,
    NotUnderstood,
    found_in,
)
from store.repositories import engine as engines
from store.session import Database

SELECTOR = "app.kubernetes.io/component=engine"
PATH = "/apis/discovery.k8s.io/v1/namespaces/llm/endpointslices"


def endpoint(address: str, **conditions: bool) -> dict[str, Any]:
    return {"addresses": [address], "conditions": conditions}


def endpoint_slice(*endpoints: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"addressType": "IPv4", "ports": [{"port": 30000}], "endpoints": endpoints, **more}


class Cluster:
    """What the API says, a page for each slice, and what it was asked."""

    def __init__(self) -> None:
        self.slices: list[dict[str, Any]] = []
        self.asked: list[web.Request] = []
        self.status = 200
        self.page: bytes | None = None

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request)
        if request.headers.get("authorization") != "Bearer of-the-account":
            return web.json_response({"kind": "Status"}, status=401)
        if self.page is not None:
            return web.Response(body=self.page, content_type="application/json")
        number = int(request.query.get("continue") or "0")
        following = str(number + 1) if number + 1 < len(self.slices) else ""
        body = {"items": self.slices[number : number + 1], "metadata": {"continue": following}}
        return web.json_response(body, status=self.status)


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def api(cluster: Cluster, tmp_path: Path) -> AsyncIterator[KubernetesApi]:
    (tmp_path / "namespace").write_text("llm\n")
    (tmp_path / "token").write_text("of-the-account\n")
    app = web.Application()
    app.router.add_get(PATH, cluster.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(port)}
    made = KubernetesApi(SELECTOR, account=tmp_path, environ=environ, scheme="http")
    yield made
    await made.close()
    await runner.cleanup()


async def in_use(database: Database) -> dict[str, bool]:
    async with database.unit_of_work() as session:
        return {one.url: one.draining for one in await engines.in_use(session, ())}


async def test_engines_come_drain_and_go_with_their_endpoints(
    cluster: Cluster, api: KubernetesApi, database: Database
) -> None:
    discovery = EngineDiscovery(api, database)
    cluster.slices = [
        endpoint_slice(endpoint("10.0.0.1", ready=True), endpoint("10.0.0.2", ready=False)),
        endpoint_slice(endpoint("10.0.0.3", ready=True)),
    ]
    await discovery.poll()
    assert {one.query["labelSelector"] for one in cluster.asked} == {SELECTOR}
    one, three = "http://10.0.0.1:30000", "http://10.0.0.3:30000"
    assert await in_use(database) == {one: False, three: False}
    cluster.slices[0] = endpoint_slice(
        endpoint("10.0.0.1", ready=False, serving=True, terminating=True)
    )
    await discovery.poll()
    assert await in_use(database) == {one: True, three: False}
    cluster.slices = cluster.slices[1:]
    await discovery.poll()
    assert await in_use(database) == {three: False}
    # The address is given to another pod.
    cluster.slices.append(endpoint_slice(endpoint("10.0.0.1", ready=True)))
    await discovery.poll()
    assert await in_use(database) == {one: False, three: False}


async def test_an_api_that_fails_takes_no_engine_away(
    cluster: Cluster, api: KubernetesApi, database: Database
) -> None:
    discovery = EngineDiscovery(api, database)
    cluster.slices = [endpoint_slice(endpoint("10.0.0.1", ready=True))]
    await discovery.poll()
    cluster.status = 500
    with pytest.raises(httpx.HTTPStatusError):
        await discovery.poll()
    assert await in_use(database) == {"http://10.0.0.1:30000": False}


@pytest.mark.parametrize(
    "bad",
    [
        None,
        7,
        [],
        "slice",
        {"ports": 7, "endpoints": []},
        {"ports": [{"port": "x"}], "endpoints": [endpoint("10.0.0.2")]},
        endpoint_slice(endpoint("not an address")),
        endpoint_slice({"addresses": 7}),
        endpoint_slice({"addresses": ["10.0.0.2"], "conditions": {"ready": "perhaps"}}),
        endpoint_slice(endpoint("10.0.0.2"), ports=[{"port": 99999}]),
        endpoint_slice(endpoint("10.0.0.2"), ports=[7]),
        endpoint_slice(None),  # type: ignore[arg-type]
    ],
    ids=str,
)
async def test_what_cannot_be_read_is_skipped_and_takes_no_engine_away(
    cluster: Cluster, api: KubernetesApi, database: Database, bad: Any
) -> None:
    discovery = EngineDiscovery(api, database)
    one, two, three = (f"http://10.0.0.{number}:30000" for number in (1, 2, 3))
    cluster.slices = [endpoint_slice(endpoint("10.0.0.1")), endpoint_slice(endpoint("10.0.0.2"))]
    await discovery.poll()
    cluster.slices[1] = bad
    cluster.slices.append(endpoint_slice(endpoint("10.0.0.3")))
    await discovery.poll()
    assert await in_use(database) == {one: False, two: False, three: False}
    del cluster.slices[1]
    await discovery.poll()
    assert await in_use(database) == {one: False, three: False}


@pytest.mark.parametrize("page", [b"[]", b"null", b"<html>", b'{"items": 7}', b'{"metadata": 7}'])
async def test_an_api_that_answers_otherwise_takes_no_engine_away(
    cluster: Cluster, api: KubernetesApi, database: Database, page: bytes
) -> None:
    discovery = EngineDiscovery(api, database)
    cluster.slices = [endpoint_slice(endpoint("10.0.0.1"))]
    await discovery.follow()
    cluster.page = page
    with pytest.raises(NotUnderstood):
        await discovery.poll()
    await discovery.follow()
    assert await in_use(database) == {"http://10.0.0.1:30000": False}


async def test_pages_without_end_are_given_up(cluster: Cluster, api: KubernetesApi) -> None:
    cluster.page = b'{"items": [], "metadata": {"continue": "more"}}'
    with pytest.raises(NotUnderstood):
        await api.slices()
    assert len(cluster.asked) == MAX_PAGES


def test_addresses_of_both_families_and_slices_without_ports() -> None:
    six = endpoint_slice(endpoint("fd00::1"), addressType="IPv6")
    assert found_in([six, endpoint_slice(endpoint("10.0.0.9"), ports=None)]) == {
        "http://[fd00::1]:30000": False
    }


def test_outside_of_kubernetes_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="COSERVE_ENGINE_SELECTOR needs a gateway"):
        KubernetesApi(SELECTOR, account=tmp_path, environ={})
