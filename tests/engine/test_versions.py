"""A real engine of the last release and one of today, with gateways and workers of both."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx
import orjson
import pytest

from coserve.setup import engine_env
from engine_adapter.client.base import CHAT_PATH
from engine_adapter.client.http import HttpEngineClient
from engine_adapter.liveness import verify_engine
from store.models import DEFAULT_PROJECT_ID
from store.repositories import key as keys
from store.session import Database
from tests.fixtures.batches import PATIENCE_S
from tests.fixtures.engine import (
    START_LIMIT_S,
    RunningEngine,
    by_command,
    running_engine,
    tiny_settings,
)
from tests.fixtures.released import POLL_INTERVAL_S, commands, gateway, release, until_ready
from tests.fixtures.workers import ROOT, workers
from tests.integration.gateway.test_rolling_restart import environment

OLD_MODEL = "served-by-the-last-release"
NUM_LINES = 4

_COMMAND = """
import json, os, sys
from pathlib import Path
from engine_adapter.engine_process import EngineSettings, engine_command
python, model, name, port = sys.argv[1:]
settings = EngineSettings(python=Path(python), model_dir=Path(model), model_name=name,
    port=int(port), kv_tokens=16_384, max_running=16)
print(json.dumps(engine_command(settings, os.environ)))
"""


def linked(python: Path, root: Path, folder: Path) -> Path:
    """An interpreter with the packages of `python`, before them the adapter of `root`."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    own = folder / "bin/python"
    link = root / "coserve/setup/engine_link.py"
    subprocess.run([python, link, own, root, "--cpu"], check=True)
    where = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    of = [
        subprocess.run([one, "-c", where], capture_output=True, text=True, check=True)
        for one in (own, python)
    ]
    mine, theirs = (done.stdout.strip() for done in of)
    (Path(mine) / "packages.pth").write_text(f"{theirs}\n")
    which = "import engine_adapter; print(engine_adapter.__file__)"
    done = subprocess.run([own, "-I", "-c", which], capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).resolve().is_relative_to(root), done.stdout
    return own


@pytest.fixture
def old_root(tmp_path: Path) -> Path:
    """The code of the last release."""
    return release(tmp_path / "released")


@pytest.fixture
def old_engine(old_root: Path, tiny_model: Path, tmp_path: Path) -> Iterator[RunningEngine]:
    """An engine with the adapter and the SGLang of the last release, started by its command."""
    sglang = engine_env.default_sglang(old_root)
    its_python = engine_env.venv_of(ROOT, sglang) / "bin/python"
    if not its_python.exists():
        pytest.skip(f"the last release serves with SGLang {sglang}: run `make test-sglang` first")
    python = linked(its_python, old_root, tmp_path / "engine")
    settings = tiny_settings(python, tiny_model)
    asked = [python, tiny_model, OLD_MODEL, settings.port]
    told = subprocess.run(
        [sys.executable, "-c", _COMMAND, *map(str, asked)],
        cwd=old_root, capture_output=True, text=True, check=True,
    )  # fmt: skip

    def start(
        argv: Sequence[str], env: Mapping[str, str], cwd: Path, log: Path
    ) -> subprocess.Popen[bytes]:
        del argv, env  # today's
        old_argv, old_env = json.loads(told.stdout)
        return by_command(old_argv, old_env, cwd, log)

    with running_engine(settings, tmp_path, start) as running:
        yield RunningEngine(running.url, OLD_MODEL, running.pid, running.log)


async def chat(http: httpx.AsyncClient, model: str) -> None:
    """One stream and one whole answer; they agree."""
    messages = [{"role": "user", "content": "Count."}]
    body = {"model": model, "messages": messages, "max_tokens": 4, "temperature": 0}
    whole = await http.post(CHAT_PATH, json=body)
    assert whole.status_code == 200, whole.text
    wanted = whole.json()["choices"][0]["message"]["content"]
    reply = await http.post(CHAT_PATH, json=body | {"stream": True})
    *events, last = reply.text.removesuffix("\n\n").split("\n\n")
    assert last == "data: [DONE]", reply.text
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    said = [part["delta"].get("content") for chunk in chunks for part in chunk["choices"]]
    assert "".join(filter(None, said)) == wanted


async def submit(http: httpx.AsyncClient, model: str) -> str:
    body = {"model": model, "messages": [{"role": "user", "content": "Count."}], "max_tokens": 8}
    rows = [
        {"custom_id": str(number), "method": "POST", "url": CHAT_PATH, "body": body}
        for number in range(NUM_LINES)
    ]
    form = {"file": ("in.jsonl", b"\n".join(map(orjson.dumps, rows)))}
    uploaded = await http.post("/v1/files", data={"purpose": "batch"}, files=form)
    assert uploaded.status_code == 200, uploaded.text
    asked = {"endpoint": CHAT_PATH, "completion_window": "24h"}
    asked["input_file_id"] = uploaded.json()["id"]
    made = await http.post("/v1/batches", json=asked)
    assert made.status_code == 200, made.text
    return str(made.json()["id"])


async def answered(http: httpx.AsyncClient, batch_id: str) -> list[str]:
    """The custom ids in the output of a completed batch, each answered with status 200."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            batch = (await http.get(f"/v1/batches/{batch_id}")).json()
            if batch["status"] == "completed":
                break
            assert batch["status"] in ("validating", "in_progress", "finalizing"), batch
            await asyncio.sleep(POLL_INTERVAL_S)
    assert batch["request_counts"]["failed"] == 0, batch
    text = (await http.get(f"/v1/files/{batch['output_file_id']}/content")).text
    rows = [json.loads(one) for one in text.splitlines()]
    assert {row["response"]["status_code"] for row in rows} == {200}
    return sorted(row["custom_id"] for row in rows)


@pytest.mark.thorough
@pytest.mark.timeout(900)
async def test_real_engines_of_two_versions_serve_gateways_and_workers_of_both(
    engine: RunningEngine,
    old_engine: RunningEngine,
    old_root: Path,
    database: Database,
    database_url: str,
    broker_url: str,
    tmp_path: Path,
) -> None:
    """Every gateway chats with every engine; both kinds of workers take rows to both."""
    for one in (engine, old_engine):
        await verify_engine(one.url, one.model, START_LIMIT_S)
        client = HttpEngineClient(one.url)
        assert (await client.facts()).plugin_is_live
        await client.close()
    models = [engine.model, old_engine.model]
    async with database.unit_of_work() as session:
        key = (await keys.create(session, DEFAULT_PROJECT_ID, "test"))[1]
    both = f"{engine.url},{old_engine.url}"
    env = environment(database_url, broker_url, both, tmp_path / "home")
    logs = {root: tmp_path / f"{root.name}.log" for root in (old_root, ROOT)}
    doors: list[httpx.AsyncClient] = []
    with ExitStack() as running:
        for root, log in logs.items():
            command, url = gateway(env)
            running.enter_context(workers([command], log, root))
            await until_ready(url)
            headers = {"authorization": f"Bearer {key}"}
            doors.append(httpx.AsyncClient(base_url=url, headers=headers, timeout=120))
        for door, model in itertools.product(doors, models):
            await chat(door, model)
        for root, log in logs.items():
            with workers(commands(root, env), log, root) as taking:
                pairs = list(itertools.product(doors, models))
                ids = [await submit(door, model) for door, model in pairs]
                for (door, model), batch_id in zip(pairs, ids, strict=True):
                    assert await answered(door, batch_id) == list(map(str, range(NUM_LINES)))
                    await chat(door, model)
                await asyncio.to_thread(taking.stop, PATIENCE_S)
        for door in doors:
            await door.aclose()
