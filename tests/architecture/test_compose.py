"""docker-compose.yml as far as a host without Docker can check it."""

from __future__ import annotations

import re
import subprocess
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine_adapter.engine_process import Device
from engine_adapter.host_gpu import CACHES, cuda_environment
from gateway.settings import GatewaySettings
from service.secret_files import SECRETS as SECRET_NAMES
from service.secret_files import SUFFIX

ROOT = Path(__file__).parents[2]
COMPOSE = (ROOT / "docker-compose.yml").read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE)["services"]
SECRETS: dict[str, dict[str, str]] = yaml.safe_load(COMPOSE)["secrets"]
MAKE_SECRETS = ROOT / "docker/make-secrets.sh"


def test_every_part_of_the_product_is_there() -> None:
    assert set(SERVICES) == {
        "postgres",
        "valkey",
        "migrate",
        "gateway",
        "worker-dispatch",
        "worker-stages",
        "worker-sweep",
        "beat",
        "engine",
    }


@pytest.mark.parametrize("name", sorted(set(SERVICES) - {"migrate"}))
def test_every_long_running_service_has_a_health_check_and_restarts(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"]
    assert SERVICES[name]["restart"] == "unless-stopped"


def test_no_secret_is_in_an_environment_or_an_argument_vector() -> None:
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            if variable.removesuffix(SUFFIX) in SECRET_NAMES | {"POSTGRES_PASSWORD"}:
                assert variable.endswith(SUFFIX), (name, variable)
                assert value.removeprefix("/run/secrets/") in service["secrets"], (name, variable)
        said = str([service.get("command"), service.get("environment")])
        assert not re.search(r"\$\{[A-Z_]*(PASSWORD|SECRET|TOKEN)", said), name


def test_every_secret_is_a_file_that_one_command_makes_and_keeps(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    subprocess.run(["sh", MAKE_SECRETS, folder], check=True)
    made = {path.name: path.read_text() for path in folder.iterdir()}
    assert {name: f"${{SECRETS_DIR:-./secrets}}/{name}" for name in made} == {
        name: secret["file"] for name, secret in SECRETS.items()
    }
    assert folder.stat().st_mode & 0o777 == 0o700
    password = made["valkey_password"]
    assert password in made["broker_url"]
    assert f"requirepass {password}\n" in made["valkey.conf"]
    assert made["postgres_password"] in made["database_url"]
    random = [made[one] for one in ("postgres_password", "valkey_password", "coserve_secret")]
    assert len({*random}) == 3
    assert min(map(len, random)) == 48
    subprocess.run(["sh", MAKE_SECRETS, folder], check=True)
    assert {path.name: path.read_text() for path in folder.iterdir()} == made


def test_dependencies_name_services_that_exist_and_wait_for_health() -> None:
    for name, service in SERVICES.items():
        for other, condition in service.get("depends_on", {}).items():
            assert other in SERVICES, (name, other)
            wanted = "service_completed_successfully" if other == "migrate" else "service_healthy"
            assert condition["condition"] == wanted


def test_the_gateway_believes_a_proxy_on_this_host_and_no_stranger() -> None:
    given = SERVICES["gateway"]["environment"]["COSERVE_TRUSTED_PROXIES"]
    trusted = GatewaySettings(trusted_proxies=given.partition(":-")[2].rstrip("}")).proxies
    subnet = yaml.safe_load(COMPOSE)["networks"]["default"]["ipam"]["config"][0]["subnet"]
    network = ip_network(subnet.partition(":-")[2].rstrip("}"))
    first, *others = network.hosts()
    assert str(first) in trusted, "where a proxy on this host comes from"
    for stranger in (*others, "192.0.2.1", "172.17.0.1", "172.31.4.5", "10.0.0.1"):
        assert str(stranger) not in trusted


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_container_has_a_limit_of_memory(name: str) -> None:
    limit = SERVICES[name]["mem_limit"]
    default = limit.partition(":-")[2].rstrip("}") or limit
    assert re.fullmatch("[1-9][0-9]*g" if name != "engine" else "0", default)


def test_a_gateway_fits_into_its_memory() -> None:
    settings = GatewaySettings()
    worst = settings.max_connections * 0.4 * 2**20 + settings.body_memory_bytes
    assert worst + 2**30 < 4 * 2**30


def test_the_gateway_is_not_killed_before_its_grace_is_over() -> None:
    given = SERVICES["gateway"]["environment"]
    grace_s = float(given["COSERVE_SHUTDOWN_GRACE_S"].partition(":-")[2].rstrip("}"))
    until_killed = SERVICES["gateway"]["stop_grace_period"].partition(":-")[2].rstrip("s}")
    assert float(until_killed) >= grace_s + float(given["COSERVE_SHUTDOWN_DELAY_S"]) + 30
    assert grace_s >= GatewaySettings().request_timeout_s, "a stream of minutes ends by itself"


def test_an_engine_is_not_killed_before_the_gateways_that_stream_from_it() -> None:
    graces = [SERVICES[name]["stop_grace_period"] for name in ("gateway", "engine")]
    assert graces[0] == graces[1]


def test_named_volumes_are_declared() -> None:
    declared = set(yaml.safe_load(COMPOSE)["volumes"])
    used = {
        str(volume).split(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", [])
        if not str(volume).startswith("$")
    }
    assert used == declared


def test_images_copy_only_what_is_in_the_repository() -> None:
    for dockerfile in sorted((ROOT / "docker").glob("*.Dockerfile")):
        for line in dockerfile.read_text().splitlines():
            if line.startswith("COPY ") and "--from=" not in line:
                for source in line.split()[1:-1]:
                    assert (ROOT / source).exists(), f"{dockerfile.name}: {source}"


def test_the_commands_exist() -> None:
    from coserve.commands.serve import ServedPart

    ours = [s for s in SERVICES.values() if s.get("image") == "coserve/service:0.2.0"]
    assert {service["command"][0] for service in ours} <= {str(part) for part in ServedPart}


def test_the_example_environment_names_every_required_variable() -> None:
    example = (ROOT / "docker/example.env").read_text()
    required = set(re.findall(r"\$\{([A-Z_]+):\?", COMPOSE))
    assert required == set(re.findall(r"^([A-Z_]+)=", example, re.MULTILINE))


OURS = sorted(name for name, one in SERVICES.items() if str(one["image"]).startswith("coserve/"))


@pytest.mark.parametrize("name", OURS)
def test_our_containers_write_only_where_they_must(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["tmpfs"] in (["/tmp"], ["/tmp:exec"])
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("path", sorted((ROOT / "docker").glob("*.Dockerfile")), ids=str)
def test_images_are_pinned_and_run_as_a_user(path: Path) -> None:
    lines = path.read_text().splitlines()
    base = next(line for line in lines if line.startswith("ARG "))
    assert re.search(r"@sha256:[0-9a-f]{64}$", base)
    name = base.removeprefix("ARG ").partition("=")[0]
    assert {line.split()[1] for line in lines if line.startswith("FROM ")} == {f"${{{name}}}"}
    installs = [line for line in lines if "pip install" in line and " -r " in line]
    assert installs
    assert all("--require-hashes" in line for line in installs)
    assert [line for line in lines if line.startswith("USER ")] == ["USER app"]


def test_the_engines_image_has_a_list_for_each_device_and_says_which_it_has() -> None:
    made = (ROOT / "docker/engine.Dockerfile").read_text()
    assert "ARG DEVICE=cuda\n" in made, "a GPU unless told otherwise"
    for device in Device:
        assert f"requirements/engine-{device}.txt" in made
    assert "COSERVE_ENGINE_DEVICE=${DEVICE}" in made
    entry = (ROOT / "docker/engine_entry.py").read_text()
    read = set(re.findall(r"COSERVE_ENGINE_[A-Z]+", entry))
    given = {name for name in SERVICES["engine"]["environment"] if name in read}
    assert given == {"COSERVE_ENGINE_PORT", "COSERVE_ENGINE_GPUS"}
    assert "COSERVE_ENGINE_DEVICE" in read


def test_images_of_others_are_pinned() -> None:
    others = [one["image"] for name, one in SERVICES.items() if name not in OURS]
    assert all(re.search(r"@sha256:[0-9a-f]{64}$", image) for image in others)


def test_volumes_of_an_engine_belong_to_its_user() -> None:
    """A named volume begins with the owner of the image's folder; without one it is root's."""
    made = (ROOT / "docker/engine.Dockerfile").read_text()
    for volume in SERVICES["engine"]["volumes"]:
        source, target, *mode = (
            volume.rsplit(":", 2) if volume.endswith(":ro") else volume.split(":")
        )
        if mode != ["ro"]:
            assert re.search(rf"chown app[^&]* {target}\b", made), (source, target)


def test_what_an_engine_compiles_lies_in_a_volume() -> None:
    engine = SERVICES["engine"]
    mounts = [mount.split(":")[1] for mount in engine["volumes"] if not mount.endswith(":ro")]
    environ = {"HOME": "/home/app", "PATH": "/usr/bin", **engine["environment"]}
    folders = cuda_environment(Path("/venv/bin/python"), environ)
    for name in CACHES:
        assert any(folders[name].startswith(f"{mount}/") for mount in mounts), name
    assert engine["tmpfs"] == ["/tmp:exec"], "compilers load what they have just made"
