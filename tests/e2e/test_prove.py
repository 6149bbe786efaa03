"""`coserve prove` against the whole service, with the fake engine and as a command."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.installation import Installation
from tests.fixtures.stack import ROOT


async def prove(installation: Installation, *options: str | Path) -> tuple[int, str]:
    """Its exit status and what it said."""
    argv = [ROOT / ".venv/bin/coserve", "prove", *options]
    env = installation.env | {
        "COSERVE_BASE_URL": f"{installation.url}/v1",
        "COSERVE_API_KEY": installation.admin_key,
    }
    process = await asyncio.create_subprocess_exec(
        *map(str, argv),
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def batches(installation: Installation) -> list[Any]:
    import httpx

    headers = {"authorization": f"Bearer {installation.admin_key}"}
    async with httpx.AsyncClient(base_url=installation.url, headers=headers) as http:
        found: list[Any] = (await http.get("/v1/batches")).json()["data"]
        return found


@pytest.mark.timeout(240)
async def test_chat_alone_with_a_batch_and_without_coserve(
    installation: Installation, tmp_path: Path
) -> None:
    stock = installation.env["ENGINE_URLS"] + "/v1"
    options = ("--minutes", "0.5", "--rate", "4", "--stock", stock, "--out", tmp_path)
    status, said = await prove(installation, *options)
    assert status == 0, said
    report = json.loads((tmp_path / "prove.json").read_text())
    assert list(report["systems"]) == ["alone", "beside", "stock"]
    for name, one in report["systems"].items():
        assert one["chats"] > 30
        assert one["failed"] == 0
        assert (one["batch_tokens_per_s"] > 0) == (name != "alone")
    assert report["model"]["id"] == "fake-model"
    assert len(report["claims"]) == 2  # medians, of both
    assert "P90" in report["refused"][0]
    assert "Chat beside a batch" in (tmp_path / "prove.html").read_text()
    assert [one["status"] for one in await batches(installation)] == ["cancelled"]


@pytest.mark.timeout(240)
async def test_too_few_chats_are_no_claim(installation: Installation, tmp_path: Path) -> None:
    status, said = await prove(installation, "--minutes", "0.1", "--rate", "3", "--out", tmp_path)
    assert status == 3, said
    assert "Nothing is claimed about P50" in said
    assert json.loads((tmp_path / "prove.json").read_text())["claims"] == []
