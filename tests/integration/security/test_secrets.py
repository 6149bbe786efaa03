"""Secrets, keys and prompts are in no log and in no answer, whatever happens in a whole run."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import httpx
import orjson
import pytest

from tests.integration.security.conftest import CANARY, Outside, chat

SECRET = "zq9-signs-the-sessions-0123456789abcdef"
TOKEN = "zq9-opens-the-metrics-0123456789abcdef"
WRONG = "sk-coserve-zq9WrongKeyWrongKeyWrongKeyWrongKey"


@pytest.fixture
def outside_settings(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "secret").write_text(SECRET + "\n")
    (tmp_path / "token").write_text(TOKEN + "\n")
    return {
        "COSERVE_SECRET_FILE": str(tmp_path / "secret"),
        "COSERVE_METRICS_TOKEN_FILE": str(tmp_path / "token"),
        "COSERVE_LOG_LEVEL": "debug",
        "COSERVE_LOG_FORMAT": "json",
    }


async def test_no_secret_is_logged_or_answered(outside: Outside) -> None:
    said = b""
    async with outside.http() as http:
        for prompt in ("", "fake:status=500 ", "fake:die_after=1 ", "fake:fail_after=1 "):
            for stream in (False, True):
                reply = await http.post(
                    "/v1/chat/completions", json=chat(prompt + CANARY, stream=stream)
                )
                said += reply.content if reply.status_code >= 400 else b""
                await asyncio.sleep(0.6 if "die" in prompt else 0)
        for content in (b"{", b'{"model": "' + CANARY.encode()):
            reply = await http.post("/v1/batches", content=content)
            said += reply.content
        odd = {"authorization": f"Bearer {WRONG}"}
        said += (await http.get("/v1/models", headers=odd)).content
        said += (await http.get(f"/v1/models?api_key={WRONG}")).content
        form = {"key": WRONG, "token": "x", "csrf": "x"}
        said += (await http.post("/admin/login", data=form)).content
        said += (await http.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"})).content
        said += (await http.get("/statusz")).content
    async with httpx.AsyncClient(base_url=outside.url) as http:
        await http.get("/v1/models", headers={"authorization": f"Basic {outside.key}"})
    outside.process.send_signal(signal.SIGTERM)
    await asyncio.to_thread(outside.process.wait)
    log = outside.log.read_bytes()
    lines = [orjson.loads(line) for line in log.splitlines()]
    assert all({"at", "level", "part", "logger", "message"} <= set(line) for line in lines)
    access = [line for line in lines if line["logger"] == "gateway.access"]
    assert len(access) >= 12, "the run is in the log"
    assert all(line["request_id"].startswith("req_") for line in access)
    for secret in (outside.key, WRONG, SECRET, TOKEN, CANARY):
        assert secret.encode() not in log
        assert secret.encode() not in said
    assert b"postgresql" not in log + said
    assert b"redis://" not in log + said


async def test_metrics_want_their_token(outside: Outside) -> None:
    async with outside.http() as http:
        for headers in ({}, {"authorization": "Bearer x"}, {"authorization": TOKEN}):
            refused = await http.get("/metrics", headers=headers)
            assert refused.status_code == 401
        opened = await http.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"})
    assert opened.status_code == 200
    assert b"coserve_http_requests_total" in opened.content
    assert outside.key.encode() not in opened.content
