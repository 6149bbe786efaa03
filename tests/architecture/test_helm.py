"""The chart, as far as a host without Kubernetes can check it: rendered and held to schemas."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from coserve.commands.serve import ServedPart
from coserve.settings import known_names
from coserve.setup.tools import helm_program
from engine_adapter.host_gpu import CACHES, cuda_environment
from service.secret_files import SECRET_FILE_NAMES

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "coserve"
HELM = helm_program(ROOT)
VALUES = sorted((CHART / "ci").glob("*.yaml"))
KUBERNETES = ("1.37.0", "1.31.0")

OTHERS = {
    "ServiceMonitor": ("selector", "endpoints"),
    "PrometheusRule": ("groups",),
    "HTTPRoute": ("parentRefs", "rules"),
    "LeaderWorkerSet": ("replicas", "leaderWorkerTemplate"),
}
"""Kinds that Kubernetes itself does not know, with what their spec must hold."""

ENGINE_IMAGE_NAMES = {"COSERVE_MODEL_NAME", "COSERVE_ENGINE_ARGS", "COSERVE_ENGINE_GPUS"}
"""What docker/engine_entry.py reads beside the product's settings."""


def helm(*args: str | Path) -> subprocess.CompletedProcess[str]:
    assert HELM.exists(), "no Helm: run `make setup-helm`"
    argv = [str(part) for part in (HELM, *args)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@cache
def rendered(values: Path) -> list[dict[str, Any]]:
    done = helm("template", "rel", CHART, "--namespace", "llm", "--values", values)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def of_kind(values: Path, kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in rendered(values) if each["kind"] == kind}


def pods(values: Path) -> list[dict[str, Any]]:
    kinds = ("Deployment", "StatefulSet", "Job")
    found = [each["spec"]["template"] for each in rendered(values) if each["kind"] in kinds]
    groups = of_kind(values, "LeaderWorkerSet").values()
    return found + [each["spec"]["leaderWorkerTemplate"]["workerTemplate"] for each in groups]


def containers(values: Path) -> list[dict[str, Any]]:
    return [one for pod in pods(values) for one in pod["spec"]["containers"]]


WHOLE = CHART / "ci" / "whole.yaml"
each_values = pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)


@each_values
def test_helm_finds_nothing_wrong(values: Path) -> None:
    done = helm("lint", "--strict", CHART, "--values", values)
    assert done.returncode == 0, done.stdout + done.stderr


@each_values
@pytest.mark.parametrize("version", KUBERNETES)
def test_every_object_is_what_kubernetes_expects(values: Path, version: str) -> None:
    for each in rendered(values):
        if each["kind"] in OTHERS:
            assert set(OTHERS[each["kind"]]) <= set(each["spec"])
        else:
            kubernetes_validate.validate(each, version, strict=True)


def test_a_misspelt_value_is_refused() -> None:
    done = helm("template", "rel", CHART, "--set", "existingSecret=s,gatway.replicas=3")
    assert done.returncode != 0
    assert "gatway" in done.stderr


@pytest.mark.parametrize("missing", ["databaseUrl", "brokerUrl", "secret"])
def test_a_missing_secret_stops_the_installation_with_its_name(missing: str) -> None:
    given = [f"secret.{name}=x" for name in ("databaseUrl", "brokerUrl", "secret")]
    kept = ",".join(one for one in given if not one.startswith(f"secret.{missing}="))
    done = helm("template", "rel", CHART, "--set", kept)
    assert done.returncode != 0
    assert f"secret.{missing}" in done.stderr


def test_a_service_monitor_without_a_token_is_refused() -> None:
    done = helm(
        "template", "rel", CHART,
        "--set", "existingSecret=s,metrics.serviceMonitor.enabled=true",
    )  # fmt: skip
    assert done.returncode != 0
    assert "metrics.token" in done.stderr


@each_values
def test_every_name_in_an_environment_is_a_setting(values: Path) -> None:
    names = {one["name"] for box in containers(values) for one in box.get("env", [])}
    for config in of_kind(values, "ConfigMap").values():
        names |= {name for name in config["data"] if name.isupper()}
    ours = {name for name in names if name.startswith("COSERVE_")}
    assert ours
    assert ours - known_names() - ENGINE_IMAGE_NAMES == set()
    plain = {
        "DATABASE_URL_FILE",
        "BROKER_URL_FILE",
        "ENGINE_URLS",
        "HOME",
        "POD_NAME",
        "XDG_CACHE_HOME",
    }
    others = {name for name in names - ours - plain if not name.startswith("OTEL_")}
    assert others <= SECRET_FILE_NAMES


@each_values
def test_no_secret_stands_in_an_environment_or_an_argument(values: Path) -> None:
    for pod in pods(values):
        assert "change-me" not in yaml.safe_dump(pod)
    for config in of_kind(values, "ConfigMap").values():
        assert "change-me" not in yaml.safe_dump(config)


def test_every_part_runs_and_no_other() -> None:
    served = {box["args"][0] for box in containers(WHOLE) if box.get("args")}
    parts = {str(part) for part in ServedPart if not part.endswith("-check")}
    assert served == parts


def test_chart_and_compose_run_the_same_parts() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    ours = [one for one in services.values() if "coserve/service" in str(one.get("image"))]
    composed = {one["command"][0] for one in ours}
    assert composed == {box["args"][0] for box in containers(WHOLE) if box.get("args")}


@each_values
def test_no_container_may_do_more_than_it_needs(values: Path) -> None:
    for pod in pods(values):
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        looks = values.stem == "discovered" and pod["spec"]["containers"][0]["name"] == "gateway"
        assert pod["spec"]["automountServiceAccountToken"] is looks
        for box in pod["spec"]["containers"]:
            assert box["securityContext"]["readOnlyRootFilesystem"] is True
            assert box["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@each_values
def test_long_running_containers_are_probed(values: Path) -> None:
    for pod in pods(values):
        for box in pod["spec"]["containers"]:
            if box["name"] != "migrate":
                assert "livenessProbe" in box, box["name"]
    (gateway,) = (box for box in containers(values) if box["name"] == "gateway")
    assert gateway["readinessProbe"]["httpGet"]["path"] == "/readyz"


@each_values
def test_a_gateway_has_time_to_finish_its_streams(values: Path) -> None:
    config = of_kind(values, "ConfigMap")["rel-coserve"]
    (gateway,) = (pod for pod in pods(values) if pod["spec"]["containers"][0]["name"] == "gateway")
    grace_s = float(config["data"]["COSERVE_SHUTDOWN_GRACE_S"])
    assert gateway["spec"]["terminationGracePeriodSeconds"] > grace_s + 5


def test_each_engine_replica_has_an_address_of_its_own() -> None:
    config = of_kind(WHOLE, "ConfigMap")["rel-coserve"]
    urls = config["data"]["ENGINE_URLS"].split(",")
    sets, services = of_kind(WHOLE, "StatefulSet"), of_kind(WHOLE, "Service")
    spread = of_kind(WHOLE, "LeaderWorkerSet")
    wanted = [
        # The controller of a LeaderWorkerSet makes a Service of its name.
        f"http://{name}-{index}.{one['spec'].get('serviceName', name)}.llm.svc:30000"
        for name, one in (sets | spread).items()
        for index in range(one["spec"]["replicas"])
    ]
    assert sorted(urls) == sorted(wanted)
    assert len(urls) == 4
    assert not spread.keys() & services.keys()
    for one in sets.values():
        assert services[one["spec"]["serviceName"]]["spec"]["clusterIP"] == "None"


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_what_an_engine_compiles_lies_in_a_volume(values: Path) -> None:
    for pod in pods(values):
        for container in pod["spec"]["containers"]:
            if container["name"] != "engine":
                continue
            environ = {one["name"]: one.get("value", "") for one in container["env"]}
            folders = cuda_environment(Path("/venv/bin/python"), environ)
            mounts = [
                one["mountPath"] for one in container["volumeMounts"] if not one.get("readOnly")
            ]
            for name in CACHES:
                assert any(folders[name].startswith(f"{mount}/") for mount in mounts), name


def test_engines_that_register_know_where_and_have_time_to_drain() -> None:
    values = CHART / "ci" / "registered.yaml"
    config = of_kind(values, "ConfigMap")["rel-coserve"]["data"]
    assert config["ENGINE_URLS"] == ""
    ((name, one),) = of_kind(values, "StatefulSet").items()
    pod = one["spec"]["template"]["spec"]
    env = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
    assert env["COSERVE_ENGINE_URL"] == f"http://$(POD_NAME).{name}.llm.svc:30000"
    host, _, port = env["COSERVE_REGISTER_URLS"].removeprefix("http://").rpartition(":")
    service = of_kind(values, "Service")[host.split(".")[0]]
    assert int(port) in {each["port"] for each in service["spec"]["ports"]}
    assert env["COSERVE_ENGINE_TOKEN_FILE"] == config["COSERVE_ENGINE_TOKEN_FILE"]
    assert float(env["COSERVE_ENGINE_DRAIN_S"]) < pod["terminationGracePeriodSeconds"]


def test_gateways_alone_may_list_endpoints_where_engines_are_found_by_label() -> None:
    values = CHART / "ci" / "discovered.yaml"
    config = of_kind(values, "ConfigMap")["rel-coserve"]["data"]
    assert config["COSERVE_ENGINE_SELECTOR"] == "app.kubernetes.io/component=engine"
    (role,) = of_kind(values, "Role").values()
    (rule,) = role["rules"]
    assert (rule["resources"], rule["verbs"]) == (["endpointslices"], ["list"])
    (binding,) = of_kind(values, "RoleBinding").values()
    (subject,) = binding["subjects"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    with_token = [
        pod["spec"]["containers"][0]["name"]
        for pod in pods(values)
        if pod["spec"]["automountServiceAccountToken"]
    ]
    assert with_token == ["gateway"]
    assert subject["name"] in of_kind(values, "ServiceAccount")
    assert not of_kind(WHOLE, "Role"), "nobody needs one without"


def test_alerts_and_dashboards_are_those_of_the_operators() -> None:
    (rule,) = of_kind(WHOLE, "PrometheusRule").values()
    assert rule["spec"] == yaml.safe_load((ROOT / "ops/prometheus/coserve.rules.yml").read_text())
    shown = {
        name: text
        for config in of_kind(WHOLE, "ConfigMap").values()
        for name, text in config["data"].items()
        if name.endswith(".json")
    }
    kept = {path.name: path.read_text() for path in (ROOT / "ops/grafana").glob("*.json")}
    assert shown == kept


@each_values
def test_selectors_find_the_pods_they_are_for(values: Path) -> None:
    labels = [pod["metadata"]["labels"] for pod in pods(values)]
    wanted = [one["spec"]["selector"]["matchLabels"] for one in rendered(values)
              if one["kind"] in ("Deployment", "StatefulSet", "PodDisruptionBudget")]  # fmt: skip
    wanted += [one["spec"]["selector"] for one in of_kind(values, "Service").values()]
    assert wanted
    for selector in wanted:
        assert sum(selector.items() <= each.items() for each in labels) == 1, selector


def test_only_gateways_and_workers_reach_engines() -> None:
    (policy,) = of_kind(WHOLE, "NetworkPolicy").values()
    doors, ranks = policy["spec"]["ingress"]
    (source,) = doors["from"]
    allowed = set(source["podSelector"]["matchExpressions"][0]["values"])
    workers = {str(part) for part in ServedPart if re.fullmatch(r"worker-(?!check).*", part)}
    assert allowed == {"gateway", *workers}
    (peer,) = ranks["from"]
    component = peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
    assert component == "engine-qwen-235b", "nodes of one model reach each other"


def test_an_engine_over_nodes_is_one_group_of_pods() -> None:
    (one,) = of_kind(WHOLE, "LeaderWorkerSet").values()
    template = one["spec"]["leaderWorkerTemplate"]
    assert template["size"] == 2
    assert template["restartPolicy"] == "RecreateGroupOnPodRestart"
    assert one["spec"]["networkConfig"]["subdomainPolicy"] == "Shared", "as the addresses assume"
    (box,) = template["workerTemplate"]["spec"]["containers"]
    assert box["resources"]["limits"]["nvidia.com/gpu"] == 8
    volumes = {each["name"]: each for each in template["workerTemplate"]["spec"]["volumes"]}
    assert {mount["name"] for mount in box["volumeMounts"]} == volumes.keys()
    assert volumes["profiles"]["persistentVolumeClaim"]["claimName"] == "profiles"


def test_engines_are_scaled_by_what_chat_gets() -> None:
    values = CHART / "ci" / "registered.yaml"
    ((name, one),) = of_kind(values, "StatefulSet").items()
    assert "replicas" not in one["spec"], "the autoscaler's business"
    scaler = of_kind(values, "HorizontalPodAutoscaler")[name]
    (metric,) = (each["external"]["metric"] for each in scaler["spec"]["metrics"])
    rules = (ROOT / "ops/prometheus/coserve.rules.yml").read_text()
    assert f"record: {metric['name']}\n" in rules
    assert metric["selector"]["matchLabels"] == {"model": "llama-3.1-8b-instruct"}


def test_engines_of_fixed_addresses_are_not_scaled() -> None:
    engine = "engines[0].name=a,engines[0].modelName=a,engines[0].model.existingClaim=m"
    scaled = "engines[0].autoscaling.enabled=true,engines[0].autoscaling.maxReplicas=2"
    done = helm("template", "rel", CHART, "--set", f"existingSecret=s,{engine},{scaled}")
    assert done.returncode != 0
    assert "engineRegistration" in done.stderr


def test_the_chart_is_the_version_of_the_product() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert project is not None
    assert chart["appVersion"] == chart["version"] == project[1]
