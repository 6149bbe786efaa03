"""Silence on a stream: comments, and giving up (row S-18)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.gateway.conftest import Online


@pytest.fixture
def online_settings() -> dict[str, Any]:
    return {"keep_alive_s": 0.1, "request_timeout_s": 1.0}


async def raw(online: Online, prompt: str) -> str:
    body = online.chat(prompt, stream=True)
    async with online.http() as http, http.stream("POST", "/chat/completions", json=body) as reply:
        assert reply.status_code == 200
        return (await reply.aread()).decode()


@pytest.mark.contract("S-18")
async def test_comments_while_the_engine_is_silent(online: Online) -> None:
    prompt = "fake:tokens=3 fake:token_ms=400"
    assert (await raw(online, prompt)).count(": keep-alive\n\n") >= 4
    async with online.client() as client:
        text = ""
        async for chunk in await client.chat.completions.create(**online.chat(prompt), stream=True):
            text += chunk.choices[0].delta.content or ""
    assert text == "1 2 3"


async def test_no_comments_while_it_speaks(online: Online) -> None:
    assert "keep-alive" not in await raw(online, "fake:tokens=20 fake:token_ms=10")


@pytest.mark.contract("C-33")
async def test_an_engine_that_says_nothing_any_more_is_given_up(online: Online) -> None:
    text = await raw(online, "fake:tokens=3 fake:token_ms=60000")
    assert '"code":"engine_unavailable"' in text
    assert "[DONE]" not in text
    await online.until_engine_is_free()
