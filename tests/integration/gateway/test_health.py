"""`/healthz`, `/statusz` and `/metrics`."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import httpx
from sqlalchemy import text

from batch.files.memory import MemoryFileStore
from gateway.routes.health import STAGE_OVERDUE_S
from store.repositories import engine as engines
from store.session import Database
from tests.fakes.engine import VERSION
from tests.fixtures.batches import PATIENCE_S, add_validating, line
from tests.integration.gateway.conftest import MODEL, Online


async def test_ready_while_everything_answers(online: Online) -> None:
    async with httpx.AsyncClient(base_url=online.url) as http:
        assert (await http.get("/healthz")).json() == {"status": "ok"}
        ready = await http.get("/statusz")
        assert ready.status_code == 200
        body = ready.json()
        assert body["status"] == "ok"
        lines = {name: body["verdict"][name]["state"] for name in ("chat", "batches", "parts")}
        assert lines == {"chat": "none", "batches": "none", "parts": "ready"}
        assert body["verdict"]["issues"] == []
        good = {"ok": True, "why": None}
        assert body["parts"] == {
            "database": good,
            "broker": good,
            "stages": good,
            "engine": {**good, "profile": None, "policy_errors": 0, "versions": [VERSION]},
        }
        assert body["models"] == [
            {
                "id": MODEL,
                "context_tokens": 2048,
                "up": True,
                "coserving_level": 3,
                "coserving_reasons": {},
            }
        ]


async def test_the_verdict_has_requests_that_fail(online: Online, database: Database) -> None:
    """Counted by this gateway and written by its recorder; a drained engine refuses all."""
    (member,) = online.app.state.engines.members
    async with database.unit_of_work() as session:
        assert await engines.drain(session, member.url)
    async with asyncio.timeout(10):
        while not member.draining:
            await asyncio.sleep(0.02)
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}
    headers = {"authorization": f"Bearer {online.key}"}
    async with httpx.AsyncClient(base_url=online.url) as http:
        for _ in range(3):
            reply = await http.post("/v1/chat/completions", json=body, headers=headers)
            assert reply.status_code == 503
            assert "being drained" in reply.json()["error"]["message"]
        assert await online.app.state.history.write()
        said = (await http.get("/statusz")).json()
    assert said["status"] == "degraded"
    assert said["verdict"]["chat"]["says"] == "Chat is refused: no engine takes requests."
    codes = {issue["code"]: issue["what"] for issue in said["verdict"]["issues"]}
    assert codes == {
        "all_drained": f"No engine takes requests for {MODEL}",
        "requests_fail": "3 of 3 requests failed in the last hour: 3 × 503",
    }


async def test_batches_that_no_worker_takes_are_told(online: Online, database: Database) -> None:
    batch_id = await add_validating(database, MemoryFileStore(), [line("a")])

    async def waits_for(age_s: int) -> tuple[int, str, dict[str, object], float]:
        async with database.unit_of_work() as session:
            await session.execute(
                text(
                    "UPDATE batches SET stage_at = statement_timestamp()"
                    f" - make_interval(secs => {age_s}) WHERE id = :id"
                ),
                {"id": batch_id},
            )
        async with httpx.AsyncClient(base_url=online.url) as http:
            ready = await http.get("/statusz")
            metrics = (await http.get("/metrics")).text
        found = re.search(r"^coserve_stage_work_oldest_seconds (\S+)$", metrics, re.MULTILINE)
        assert found is not None
        body = ready.json()
        return ready.status_code, body["status"], body["parts"]["stages"], float(found[1])

    code, status, part, oldest_s = await waits_for(1)
    assert (code, status, part["ok"]) == (200, "ok", True)
    assert 1 <= oldest_s < STAGE_OVERDUE_S
    code, status, part, oldest_s = await waits_for(600)
    # Everything answers, so that whoever waits for a start or a rollout need not wait for this.
    assert (code, status, part["ok"]) == (200, "degraded", False)
    assert "has waited 60" in str(part["why"])
    assert oldest_s >= 600


async def test_ready_while_an_engine_measures_and_says_so(online: Online) -> None:
    member = online.app.state.engines.members[0]
    for state in ("measuring", "stored"):
        member.facts.raw.setdefault("coserve", {})["profile"] = {"state": state}
        async with httpx.AsyncClient(base_url=online.url) as http:
            ready = await http.get("/statusz")
        assert ready.status_code == 200
        engine = ready.json()["parts"]["engine"]
        assert (engine["ok"], engine["why"], engine["profile"]) == (True, None, state)


async def test_not_ready_says_why(online: Online) -> None:
    async with httpx.AsyncClient(base_url=online.url) as http:
        async with asyncio.timeout(10):
            # A lost connection ejects the engine until the next good probe, which may come at once.
            while True:
                async with online.http() as caller:
                    body = online.chat("fake:die_after=0")
                    await caller.post("/v1/chat/completions", json=body)
                ready = await http.get("/statusz")
                if ready.status_code == 503:
                    break
        part = ready.json()["parts"]["engine"]
        assert part["ok"] is False
        assert part["why"]


async def test_an_engine_without_our_plugin_is_not_ready_and_gets_no_request(
    online: Online,
) -> None:
    """SGLang starts without a plugin that broke, and says in a log nobody reads that it did."""
    engines, engine = online.app.state.engines, online.engine
    engine.settings = replace(engine.settings, plugin=False)
    await engines.probe()
    async with httpx.AsyncClient(base_url=online.url) as http, online.http() as caller:
        ready = await http.get("/statusz")
        assert ready.status_code == 503
        assert "runs without coserve's scheduler plugin" in ready.json()["parts"]["engine"]["why"]
        refused = await caller.post("/v1/chat/completions", json=online.chat("a"))
        assert refused.status_code == 503
        assert not engine.received
        engine.settings = replace(engine.settings, plugin=True)
        await engines.probe()
        assert (await http.get("/statusz")).status_code == 200


async def test_what_stands_behind_takes_no_gateway_out_of_rotation(online: Online) -> None:
    engines, engine = online.app.state.engines, online.engine
    engine.settings = replace(engine.settings, plugin=False)
    await engines.probe()
    async with httpx.AsyncClient(base_url=online.url) as http:
        assert (await http.get("/statusz")).json()["status"] == "degraded"
        ready = await http.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "ready")
        assert "without coserve's scheduler plugin" in ready.json()["no_engine"]
        online.app.state.stopping = True
        ready = await http.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "stopping")
        assert ready.headers["connection"] == "close"
        online.app.state.stopping = False
        engines.members[0].asked = engines.members[0].up = False
        assert (await http.get("/readyz")).json() == {"status": "starting"}


async def test_who_can_send_chat_elsewhere_is_told_that_no_engine_takes_it(
    online: Online, database: Database
) -> None:
    (member,) = online.app.state.engines.members
    async with httpx.AsyncClient(base_url=online.url) as http:
        for path in ("/readyz", "/readyz?chat=true"):
            ready = await http.get(path)
            assert (ready.status_code, ready.json()) == (200, {"status": "ready"})
        async with database.unit_of_work() as session:
            assert await engines.drain(session, member.url)
        async with asyncio.timeout(PATIENCE_S):
            while member.open:
                await asyncio.sleep(0.05)
        why = {"no_engine": "every engine is draining"}
        ready = await http.get("/readyz")
        assert (ready.status_code, ready.json()) == (200, {"status": "ready", **why})
        ready = await http.get("/readyz?chat=true")
        assert (ready.status_code, ready.json()) == (503, {"status": "no_engine", **why})


async def test_metrics_tell_pages_from_api_routes(online: Online) -> None:
    async with online.http() as http:
        for path in ("/admin/login", "/admin/batches", "/admin/static/app.css", "/admin/nope"):
            await http.get(path)
        await http.get("/admin/static/charts.js")
        await http.get("/v1/batches")
        text = (await http.get("/metrics")).text
    counted = re.findall(
        r'^coserve_http_requests_total\{method="GET",route="(.*)",status="(\d+)"\} (\S+)$',
        text,
        re.MULTILINE,
    )
    assert {(route, status): float(number) for route, status, number in counted} == {
        ("/admin/login", "200"): 1,
        ("/admin/batches", "303"): 1,
        ("/admin/static", "200"): 2,
        ("unmatched", "404"): 1,
        ("/batches", "200"): 1,
    }


async def test_metrics_count_what_happened(online: Online) -> None:
    async with online.http() as http:
        for stream in (False, True):
            await http.post("/v1/chat/completions", json=online.chat("a b", stream=stream))
        await http.get("/v1/nope")
        text = (await http.get("/metrics")).text
    counted = dict(re.findall(r"^(coserve_\S+) (\S+)$", text, re.MULTILINE))
    requests = 'coserve_http_requests_total{method="POST",route="/chat/completions",status="200"}'
    labels = f'model="{MODEL}",request_class="online"'
    assert float(counted[requests]) == 2
    assert float(counted[f'coserve_tokens_total{{kind="prompt",{labels}}}']) == 4
    assert float(counted[f'coserve_tokens_total{{kind="completion",{labels}}}']) == 16
    assert float(counted[f"coserve_ttft_seconds_count{{{labels}}}"]) == 1
    assert float(counted["coserve_engine_calls_in_flight"]) == 0
    assert any(line.startswith('coserve_engine_up{engine="') for line in counted)
    assert 'route="unmatched",status="404"' in text


async def test_the_bare_address_leads_somewhere(online: Online) -> None:
    async with httpx.AsyncClient(base_url=online.url) as http:
        browser = await http.get("/", headers={"accept": "text/html,application/xhtml+xml"})
        assert (browser.status_code, browser.headers["location"]) == (303, "/admin/")
        told = (await http.get("/")).json()
        assert told["name"] == "coserve"
        for path in (told["dashboard"], told["description"], told["health"]):
            assert (await http.get(path)).status_code in (200, 303), path
