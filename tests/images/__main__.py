"""`make images`: build our images and run all of docker-compose.yml, as it says.

As root on Debian, without Docker and without a registry: what takes the place of what is not here
is printed with the rest. Nothing of the host's own containers is touched.

    --engine real   the engine's image too, with a CPU engine: SGLang, the plugin, the default model
    --engine fake   the fake engine in its place
    --engine cuda   the engine's image as it is, several GB, looked at without a GPU; nothing else
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from coserve.setup.model import default_model_dir
from coserve.setup.progress import SetupFailed
from coserve.setup.verbs import state_home
from engine_adapter.refusal import EXIT_REFUSED, PREFIX
from tests.images.building import (
    ENGINE_CPU,
    ENGINE_CUDA,
    SERVICE,
    Image,
    Store,
    build,
    install_programs,
    make_base,
)
from tests.images.running import (
    FAKE_ENGINE,
    POSTGRES,
    VALKEY,
    Compose,
    Containers,
    containers,
)

LIMIT_S = 400.0
STOP_LIMIT_S = 60
"""No part needs its whole grace where nothing runs."""
NUM_ROWS = 20
WORKERS = ("worker-dispatch", "worker-stages", "worker-sweep")
PARTS = ("gateway", *WORKERS, "beat")
REPLACED = """what took the place of what is not here:
  python:3.12-slim          Debian 12's Python 3.11, by mmdebstrap
  postgres, valkey          the same servers out of the wheels in our image
  {engine}
  docker compose            podman with runc, told what docker-compose.yml says
  the bridge network        a network namespace in which the names are 127.0.0.1"""
ENGINES = {
    "fake": "the engine and its GPU    the fake engine, out of our image",
    "real": "NVIDIA's base and a GPU   the same Debian; docker/engine.Dockerfile with DEVICE=cpu",
}
REPLACED_CUDA = """what took the place of what is not here:
  nvidia/cuda:13.0.1-devel  Debian 12's Python 3.11, by mmdebstrap; compilers of CUDA are missing
  a GPU                     nothing: the engine says so and ends"""
MODEL = {"fake": "fake-model", "real": "model"}
ASKED = {"fake": "fake:text=hello", "real": "What is the capital of France?"}
ANSWERED = {"fake": "hello", "real": "Paris"}

_CLIENT = """
import json, sys, time
from openai import OpenAI
key, model, text, num = sys.argv[1:]
client = OpenAI(base_url="http://127.0.0.1:8080/v1", api_key=key)
say = [{"role": "user", "content": text}]
told = client.chat.completions.create(model=model, messages=say, max_tokens=32)
lines = [{"custom_id": str(n), "method": "POST", "url": "/v1/chat/completions",
          "body": {"model": model, "messages": say, "max_tokens": 32}} for n in range(int(num))]
content = "\\n".join(map(json.dumps, lines)).encode()
file = client.files.create(file=("lines.jsonl", content), purpose="batch")
batch = client.batches.create(
    input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
until = time.monotonic() + 180
while batch.status not in ("completed", "failed") and time.monotonic() < until:
    time.sleep(0.5)
    batch = client.batches.retrieve(batch.id)
output = map(json.loads, client.files.content(batch.output_file_id).text.splitlines())
texts = {int(one["custom_id"]): one["response"]["body"]["choices"][0]["message"]["content"]
         for one in output}
print(json.dumps([told.choices[0].message.content, batch.status, sorted(texts.items())]))
"""
_LIVENESS = """
import asyncio
from engine_adapter.liveness import verify_engine
facts = asyncio.run(verify_engine("http://engine:30000", "model", 400))
print(facts.plugin_is_live)
"""
_PLUGIN = """
import sglang.srt.plugins as plugins
plugins.load_plugins()
from sglang.srt.managers.scheduler import Scheduler
import torch
print(Scheduler.__module__, torch.__version__, torch.version.cuda)
"""


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for it.

    Raises:
        TimeoutError: It does not come.
    """
    until_s = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > until_s:
            raise TimeoutError(f"{what}: not within {LIMIT_S:.0f} s")
        time.sleep(0.5)


def checked(said: str, good: bool) -> bool:
    """Print a finding; whether it is good."""
    print(f"  {'ok  ' if good else 'BAD '} {said}", flush=True)
    return good


def start_engine(here: Containers) -> bool:
    """The real one; whether it is proven as everywhere: its word, a chat, structured output."""
    began_s = time.monotonic()
    here.start_service("engine")
    until(lambda: here.is_well("engine"), "the engine is well")
    took_s = time.monotonic() - began_s
    live = here.exec("gateway", "python", "-c", _LIVENESS, check=False).strip()
    name = here.compose.services["engine"]["image"]
    return checked(f"{name} is well after {took_s:.0f} s, our plugin is live in it", live == "True")


def use(here: Containers, engine: str) -> bool:
    """A chat and a batch by the official client; whether every answer is right."""
    key = here.exec("gateway", "coserve", "key", "create", "images").split()[-1]
    client = [sys.executable, "-c", _CLIENT, key, MODEL[engine], ASKED[engine], str(NUM_ROWS)]
    inside = ["ip", "netns", "exec", here.network, *client]
    began_s = time.monotonic()
    answered = subprocess.run(inside, capture_output=True, text=True, check=False)
    took_s = time.monotonic() - began_s
    if answered.returncode:
        return checked(f"the official client: {answered.stderr[-500:]}", False)
    told, status, rows = json.loads(answered.stdout)
    texts = [told, *(text for _, text in rows)]
    whole = [number for number, _ in rows] == list(range(NUM_ROWS))
    good = whole and status == "completed" and all(ANSWERED[engine] in text for text in texts)
    said = f"chat, and a batch of {NUM_ROWS} rows, by the official client, in {took_s:.1f} s"
    if not checked(f"{said}: {told!r}", good):
        print(answered.stdout)
    return good


def prove(here: Containers, engine: str) -> bool:
    """Start everything, use it, look at how it runs, stop it; whether all is as promised."""
    here.start_stand_in("postgres", POSTGRES, "postgres_password")
    here.start_stand_in("valkey", VALKEY, "valkey.conf")
    if engine == "fake":
        here.start_stand_in("engine", FAKE_ENGINE)
    until(lambda: "ready to accept" in here.logs("postgres"), "Postgres is ready")
    here.run_service("migrate")
    for name in PARTS:
        here.start_service(name)
    for name in PARTS:
        until(lambda name=name: here.is_well(name), f"{name} is well")  # type: ignore[misc]
    good = [checked(f"healthy, by the checks of the compose file: {', '.join(PARTS)}", True)]
    if engine == "real":
        good.append(start_engine(here))
    good.append(use(here, engine))
    parts = PARTS if engine == "fake" else (*PARTS, "engine")
    good += [is_confined(here, name) for name in parts]
    good += [ends(here, name) for name in parts]
    return all(good)


def ends(here: Containers, name: str) -> bool:
    """Whether a part ends well by SIGTERM, within what the compose file grants."""
    began_s = time.monotonic()
    status = here.stop(name, min(STOP_LIMIT_S, here.compose.grace_s(name)))
    took_s = time.monotonic() - began_s
    return checked(f"{name} ends by SIGTERM with status {status} in {took_s:.1f} s", status == 0)


def is_confined(here: Containers, name: str) -> bool:
    """Whether a part has a user of its own, no rights, and writes nowhere but in its volumes."""
    uid = here.exec(name, "id", "-u").strip()
    closed, opened = "/app/x /venv/x /x /run/x /model/x", here.compose.written_by(name)
    here.exec(name, "sh", "-c", f"touch {closed}; true", check=False)
    left = here.exec(name, "sh", "-c", f"ls {closed} 2>/dev/null | wc -l").strip()
    files = [f"{folder}/.written" for folder in opened]
    written = here.exec(name, "sh", "-c", f"touch {' '.join(files)} && ls {' '.join(files)}")
    caps = here.exec(name, "sh", "-c", "grep -E 'CapEff|NoNewPrivs' /proc/1/status").split()
    return checked(
        f"{name}: user {uid}, no capabilities, no new privileges, writes to {', '.join(opened)} "
        "and nowhere else",
        (uid, left, written.split(), caps[1], caps[3])
        == ("10001", "0", sorted(files), "0" * 16, "1"),
    )


def look(here: Containers) -> bool:
    """What can be said of the image for CUDA without a GPU."""
    began_s = time.monotonic()
    refused = here.try_service("engine", ENGINE_CUDA.name)
    took_s = time.monotonic() - began_s
    lines = refused.stderr.splitlines()
    plain = refused.returncode == EXIT_REFUSED and len(lines) == 1 and lines[0].startswith(PREFIX)
    good = [checked(f"without a GPU it ends after {took_s:.1f} s: {refused.stderr.strip()}", plain)]
    loaded = here.try_service("engine", ENGINE_CUDA.name, "python", "-c", _PLUGIN)
    live = loaded.stdout.startswith("engine_adapter.sglang.")
    said = f"SGLang's loader puts our scheduler in its place: {loaded.stdout.strip()}"
    good.append(checked(said, live))
    if not live:
        print(loaded.stdout, loaded.stderr[-3000:])
    return all(good)


def make(store: Store, image: Image, folder: Path) -> None:
    """Build one, and say how long that took and how large it is."""
    began_s = time.monotonic()
    print(f"images: {image.name} is built", flush=True)
    build(store, image, folder)
    took_s, size = time.monotonic() - began_s, store.size(image.name)
    print(f"images: {image.name} ({size}) from {image.dockerfile} after {took_s:.0f} s", flush=True)


def run(options: argparse.Namespace, temporary: Path) -> bool:
    """Build, start, prove; whether all is as promised."""
    folder: Path = options.keep or temporary
    folder.mkdir(exist_ok=True)
    store = Store(folder)
    wanted = {"fake": [SERVICE], "real": [SERVICE, ENGINE_CPU], "cuda": [ENGINE_CUDA]}
    if not options.built:
        make_base(store)
        for image in wanted[options.engine]:
            make(store, image, temporary)
    is_cuda = options.engine == "cuda"
    print(REPLACED_CUDA if is_cuda else REPLACED.format(engine=ENGINES[options.engine]), flush=True)
    compose = Compose({"MODEL_DIR": str(default_model_dir(state_home()).resolve())})
    try:
        with containers(store, temporary, compose) as here:
            try:
                return look(here) if is_cuda else prove(here, options.engine)
            except BaseException:
                for name in here.names():
                    print(f"--- {name}\n{here.logs(name)}")
                raise
    finally:
        for mount in (folder / "store" / "overlay", folder / "store"):
            subprocess.run(["umount", "-l", mount], capture_output=True, check=False)


def main() -> int:
    """What `make images` calls."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("fake", "real", "cuda"), default="real")
    parser.add_argument("--keep", type=Path, help="folder for images, so that they stay")
    parser.add_argument("--built", action="store_true", help="use the images that were kept there")
    options = parser.parse_args()
    try:
        install_programs()
    except SetupFailed as failed:
        print(failed)
        return 2
    with tempfile.TemporaryDirectory(prefix="csi-") as temporary:
        good = run(options, Path(temporary))
        began_s = time.monotonic()
        print("images: what was built here is removed", flush=True)
    print(f"images: removed after {time.monotonic() - began_s:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
