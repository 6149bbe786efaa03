"""`/models`."""

from __future__ import annotations

import openai
import pytest

from tests.integration.gateway.conftest import MODEL, Online


@pytest.mark.contract("M-01", "M-02", "M-03", "M-05")
async def test_list_and_get(online: Online) -> None:
    async with online.client() as client:
        (model,) = (await client.models.list()).data
        assert (model.id, model.object, model.owned_by) == (MODEL, "model", "coserve")
        assert isinstance(model.created, int)
        assert (await client.models.retrieve(MODEL)).id == MODEL
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.models.retrieve("org/other")
        assert unknown.value.code == "model_not_found"
        with pytest.raises(openai.PermissionDeniedError):
            await client.models.delete(MODEL)


@pytest.mark.contract("M-03")
async def test_an_id_with_a_slash_raw_and_encoded(online: Online) -> None:
    async with online.http() as http:
        for path in (f"/v1/models/{MODEL}", f"/v1/models/{MODEL.replace('/', '%2F')}"):
            reply = await http.get(path)
            assert reply.json()["id"] == MODEL
