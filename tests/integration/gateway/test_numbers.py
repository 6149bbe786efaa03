"""A number beyond the model's tables ends at the door, online and in batches, named."""

from __future__ import annotations

from typing import Any, Final

import openai
import orjson
import pytest

from batch.intake.validate import validate
from store.repositories import engine as engines
from store.session import Database
from tests.fixtures.live_gateway import Api
from tests.integration.gateway.conftest import MODEL, Online
from tests.integration.gateway.test_batch_check import check
from tests.integration.gateway.test_batches import upload

VOCABULARY = 49_152
COMPLETIONS: Final = "/v1/completions"
BEYOND: list[tuple[dict[str, Any], str]] = [
    ({"prompt": [VOCABULARY]}, "prompt[0]"),
    ({"prompt": [[1], [VOCABULARY + 7]]}, "prompt[1][0]"),
    ({"stop_token_ids": [VOCABULARY + 1], "min_tokens": 2}, "stop_token_ids[0]"),
    ({"logit_bias": {str(VOCABULARY): 1}}, "logit_bias"),
    ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
]


@pytest.mark.parametrize(("changes", "param"), BEYOND)
async def test_online(online: Online, changes: dict[str, Any], param: str) -> None:
    online.engine.report["model"] = {"vocab_size": VOCABULARY, "hidden_size": 64}
    await online.app.state.engines.probe()
    extra = {name: value for name, value in changes.items() if name not in ("prompt", "max_tokens")}
    known = {"prompt": "hi", **{n: v for n, v in changes.items() if n not in extra}}
    async with online.client() as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.completions.create(model=MODEL, **known, extra_body=extra)
        assert refused.value.param == param
        assert (await client.completions.create(model=MODEL, prompt=[VOCABULARY - 1])).choices


async def test_in_a_batch(api: Api, database: Database) -> None:
    told = {"vocab_size": VOCABULARY, "hidden_size": 64}
    async with database.unit_of_work() as session:
        await engines.saw(session, "http://127.0.0.1:1", "m", 2048, told)
    lines = [
        {
            "custom_id": str(n),
            "method": "POST",
            "url": COMPLETIONS,
            "body": {"model": "m", "prompt": "hi", **changes},
        }
        for n, (changes, _) in enumerate(BEYOND)
    ]
    async with api.client() as client:
        file_id = await upload(client, b"\n".join(map(orjson.dumps, lines)))
        found = await check(client, file_id, COMPLETIONS)
        batch = await client.batches.create(
            input_file_id=file_id, endpoint=COMPLETIONS, completion_window="24h"
        )
        await validate(database, api.app.state.file_store, batch.id)
        batch = await client.batches.retrieve(batch.id)
    assert [one["param"] for one in found["errors"]["data"]] == [f"body.{p}" for _, p in BEYOND]
    assert batch.errors is not None
    assert batch.errors.model_dump() == found["errors"]
