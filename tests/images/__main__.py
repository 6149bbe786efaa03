"""`make images`: build the service's image and run all of it, as docker-compose.yml says.

As root on Debian, without Docker and without a registry: what takes the place of what is not here
is printed with the rest. Nothing of the host's own containers is touched.
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

from coserve.setup.progress import SetupFailed
from tests.images.building import BASE, SERVICE, Store, build, install_programs, make_base
from tests.images.running import ENGINE, POSTGRES, VALKEY, Containers, containers

LIMIT_S = 400.0
STOP_LIMIT_S = 60
NUM_ROWS = 20
WORKERS = ("worker-dispatch", "worker-stages", "worker-sweep")
PARTS = ("gateway", *WORKERS, "beat")
REPLACED = """what took the place of what is not here:
  python:3.12-slim          Debian 12's Python 3.11, by mmdebstrap
  postgres, valkey          the same servers out of the wheels in our image
  the engine and its GPU    the fake engine, out of our image
  docker compose            podman with runc, told what docker-compose.yml says
  the bridge network        a network namespace in which the names are 127.0.0.1
what is not built: the engine's image (docker/engine.Dockerfile), which wants NVIDIA's base
  out of a registry, and a GPU to run; its list of packages was resolved (make lock-engine)"""

_CLIENT = """
import json, sys, time
from openai import OpenAI
key, model, num = sys.argv[1:]
client = OpenAI(base_url="http://127.0.0.1:8080/v1", api_key=key)
say = [{"role": "user", "content": "fake:text=hello"}]
told = client.chat.completions.create(model=model, messages=say).choices[0].message.content
lines = [{"custom_id": str(n), "method": "POST", "url": "/v1/chat/completions",
          "body": {"model": model, "messages": say}} for n in range(int(num))]
content = "\\n".join(map(json.dumps, lines)).encode()
file = client.files.create(file=("lines.jsonl", content), purpose="batch")
batch = client.batches.create(
    input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
until = time.monotonic() + 180
while batch.status not in ("completed", "failed") and time.monotonic() < until:
    time.sleep(0.5)
    batch = client.batches.retrieve(batch.id)
output = client.files.content(batch.output_file_id).text.splitlines()
print(json.dumps([told, batch.status, sorted(int(json.loads(one)["custom_id"]) for one in output)]))
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


def prove(here: Containers) -> bool:
    """Start everything, use it, look at how it runs, stop it; whether all is as promised."""
    here.start_stand_in("postgres", POSTGRES, "postgres_password")
    here.start_stand_in("valkey", VALKEY, "valkey.conf")
    here.start_stand_in("engine", ENGINE)
    until(lambda: "ready to accept" in here.logs("postgres"), "Postgres is ready")
    here.run_service("migrate")
    for name in PARTS:
        here.start_service(name)
    for name in PARTS:
        until(lambda name=name: here.is_well(name), f"{name} is well")  # type: ignore[misc]
    good = [checked(f"healthy, by the checks of the compose file: {', '.join(PARTS)}", True)]
    key = here.exec("gateway", "coserve", "key", "create", "images").split()[-1]
    client = [sys.executable, "-c", _CLIENT, key, "fake-model", str(NUM_ROWS)]
    inside = ["ip", "netns", "exec", here.network, *client]
    answered = subprocess.run(inside, capture_output=True, text=True, check=False)
    told = json.loads(answered.stdout) if answered.returncode == 0 else answered.stderr[-500:]
    whole = ["hello", "completed", list(range(NUM_ROWS))]
    good.append(
        checked(f"chat, and a batch of {NUM_ROWS} rows, by the official client", told == whole)
    )
    if told != whole:
        print(told)
    for name in PARTS:
        uid = here.exec(name, "id", "-u").strip()
        written = here.exec(name, "sh", "-c", "touch /app/x /venv/x /x; true", check=False)
        left = here.exec(name, "sh", "-c", "ls /app/x /venv/x /x 2>/dev/null | wc -l").strip()
        caps = here.exec(name, "sh", "-c", "grep -E 'CapEff|NoNewPrivs' /proc/1/status").split()
        good.append(
            checked(
                f"{name}: user {uid}, root read-only, no capabilities, no new privileges{written}",
                (uid, left, caps[1], caps[3]) == ("10001", "0", "0" * 16, "1"),
            )
        )
    for name in PARTS:
        status = here.stop(name, STOP_LIMIT_S)
        good.append(checked(f"{name} ends by SIGTERM with status {status}", status == 0))
    return all(good)


def main() -> int:
    """Build, run, say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="folder for images, so that they stay")
    parser.add_argument("--built", action="store_true", help="use the image that was kept there")
    options = parser.parse_args()
    try:
        install_programs()
    except SetupFailed as failed:
        print(failed)
        return 2
    with tempfile.TemporaryDirectory(prefix="csi-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        store = Store(folder)
        began_s = time.monotonic()
        if not options.built:
            print(f"images: {SERVICE} is built (5 min)", flush=True)
            make_base(store)
            build(store, BASE)
        size = store.run("podman", "images", "--format={{.Size}}", SERVICE).split("\n")[0]
        print(f"images: {SERVICE} ({size}) after {time.monotonic() - began_s:.0f} s")
        print(REPLACED, flush=True)
        with containers(store, Path(temporary)) as here:
            try:
                good = prove(here)
            except BaseException:
                for name in here.names():
                    print(f"--- {name}\n{here.logs(name)}")
                raise
        for mount in (folder / "store" / "overlay", folder / "store"):
            subprocess.run(["umount", "-l", mount], capture_output=True, check=False)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
