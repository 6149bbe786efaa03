"""The official client over each transport it has gives the same results."""

from __future__ import annotations

from typing import Any

import openai
from openai import AsyncOpenAI, DefaultAioHttpClient, DefaultAsyncHttpx2Client

from tests.integration.contract.conftest import MODEL, Live


async def _everything(live: Live, transport: Any) -> list[Any]:
    """What one client sees of each kind of reply, without what differs from call to call."""
    asked = live.chat("say fake:text=Paris_it_is")
    async with AsyncOpenAI(
        base_url=f"{live.gateway.url}/v1",
        api_key=live.gateway.key,
        max_retries=0,
        http_client=transport,
        _strict_response_validation=True,
    ) as client:
        whole = await client.chat.completions.create(**asked)
        stream = await client.chat.completions.create(**asked, stream=True)
        pieces = [chunk.choices[0].delta.content async for chunk in stream]
        raw = await client.chat.completions.with_raw_response.create(**asked)
        file = await client.files.create(file=("a.jsonl", b"{}\n"), purpose="batch")
        content = (await client.files.content(file.id)).content
        files = [
            one.filename
            async for one in client.files.list(limit=1, purpose="batch")
            if one.id == file.id
        ]
        try:
            await client.chat.completions.create(**{**asked, "model": "none"})
        except openai.NotFoundError as error:
            refused = (error.code, error.param, error.request_id is not None)
        deleted = (await client.files.delete(file.id)).deleted
        models = [model.id async for model in client.models.list()]
    return [
        whole.choices, whole.usage, pieces, raw.headers["content-type"], content, files, refused,
        deleted, models,
    ]  # fmt: skip


async def test_z_09_either_transport_of_the_async_client(live: Live) -> None:
    seen = await _everything(live, DefaultAsyncHttpx2Client())
    assert seen == await _everything(live, DefaultAioHttpClient())
    assert seen[0][0].message.content == "Paris it is"
    assert seen[4:] == [b"{}\n", ["a.jsonl"], ("model_not_found", "model", True), True, [MODEL]]
