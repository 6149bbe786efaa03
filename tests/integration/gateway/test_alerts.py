"""Alerts fire and are silent as they should; alerts and dashboards name metrics that exist."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from coserve.setup.tools import find_promtool
from gateway.observability.metrics import Metrics
from tests.integration.gateway.conftest import MODEL, Online

ROOT = Path(__file__).parents[3]
OPS = ROOT / "ops"
RUNBOOK = ROOT / "docs" / "operations" / "runbook"
DASHBOARDS = sorted((OPS / "grafana").glob("*.json"))


def rules() -> list[dict[str, Any]]:
    told = yaml.safe_load((OPS / "prometheus" / "coserve.rules.yml").read_text())
    return [rule for group in told["groups"] for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def queries(dashboard: Path) -> list[str]:
    told = json.loads(dashboard.read_text())
    variables = [
        one["query"]["query"] for one in told["templating"]["list"] if one["name"] != "datasource"
    ]
    return [target["expr"] for panel in told["panels"] for target in panel["targets"]] + variables


def metrics_in(query: str) -> set[str]:
    return set(re.findall(r"\b(?:coserve_|process_)[a-z0-9_]+", query))


@pytest.mark.promtool
def test_promtool_finds_each_alert_right() -> None:
    program = find_promtool(ROOT)
    assert program is not None
    done = subprocess.run(
        [program, "test", "rules", "coserve.test.yml"],
        cwd=OPS / "prometheus",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


Series = list[dict[str, str]]


async def scrapes(online: Online) -> tuple[Series, Series]:
    """The same service as one gateway of one process has it, and as two of two processes each do.

    What every process would say alike is there once a gateway; what each counts is a quarter in
    each of the four.
    """
    await exported(online)
    metrics: Metrics = online.app.state.metrics
    one, many = [], []
    for registry, is_shared in ((metrics.seen_by_all, True), (metrics.registry, False)):
        for number, (name, labels, grows) in enumerate(samples_of(registry)):
            step = 4 * (number % 7 + 1)
            one.append(series(name, {**labels, "instance": "a"}, step, grows=grows))
            for instance in ("a", "b"):
                there = {**labels, "instance": instance}
                if is_shared:
                    many.append(series(name, there, step, grows=grows))
                    continue
                many += [
                    series(name, {**there, "process": process}, step // 4, grows=grows)
                    for process in ("0", "1")
                ]
    return one, many


def samples_of(registry: CollectorRegistry) -> Iterator[tuple[str, dict[str, str], bool]]:
    for family in registry.collect():
        for sample in family.samples:
            grows = family.type in ("counter", "histogram", "summary")
            yield sample.name, dict(sample.labels), grows


def series(name: str, labels: dict[str, str], step: int, *, grows: bool) -> dict[str, str]:
    told = ", ".join(f"{key}={json.dumps(value)}" for key, value in labels.items())
    start = "0" if grows else str(step)
    return {"series": f"{name}{{{told}}}", "values": f"{start}+{step if grows else 0}x240"}


def answers(program: str, folder: Path, told: Series, asked: list[str]) -> dict[str, str]:
    """What each query comes to, as promtool tells it where nothing was expected; those that do."""
    up = [{"series": f'up{{job="coserve", instance="{one}"}}', "values": "1x240"} for one in "ab"]
    plan = {
        "rule_files": [str(OPS / "prometheus" / "coserve.rules.yml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "30s",
                "input_series": [*told, *up],
                "promql_expr_test": [
                    {"expr": query, "eval_time": "2h", "exp_samples": []} for query in asked
                ],
            }
        ],
    }
    path = folder / "plan.yml"
    path.write_text(yaml.safe_dump(plan))
    done = subprocess.run([program, "test", "rules", path], capture_output=True, text=True)
    said = done.stdout + done.stderr
    found = dict(re.findall(r'expr: (".*"), time: 2h,\s*exp: nil\s*got: (.*)', said))
    return {query: found[json.dumps(query)] for query in asked if json.dumps(query) in found}


def rounded(said: str) -> str:
    """With fewer digits than a sum of four differs from a whole in."""
    return re.sub(r"\d+\.\d+(?:[eE][+-]?\d+)?", lambda one: f"{float(one[0]):.6g}", said)


@pytest.mark.promtool
async def test_several_gateways_and_processes_come_to_the_same(
    online: Online, tmp_path: Path
) -> None:
    program = find_promtool(ROOT)
    assert program is not None
    asked = [rule["expr"] for rule in rules()]
    asked += [
        query.replace("$__rate_interval", "5m").replace("$model", ".*").replace("$engine", ".*")
        for one in DASHBOARDS
        for query in queries(one)
        if "label_values" not in query
    ]
    # Of those that are silent on any service that is well, the part before the threshold is asked.
    asked = [re.sub(r" (?:[<>]=?|==) [0-9.]+", "", query) for query in asked]
    # A disk is its host's and a loop its gateway's: those of two hosts are two.
    asked = [
        query
        for query in asked
        if not query.startswith("coserve_disk_bytes") and "by (instance" not in query
    ]
    one, many = await scrapes(online)
    alone = answers(program, tmp_path, one, asked)
    together = answers(program, tmp_path, many, asked)
    assert len(alone) > 30
    assert {query: rounded(said) for query, said in together.items()} == {
        query: rounded(said) for query, said in alone.items()
    }


def test_each_alert_is_tried_by_promtool() -> None:
    tried = (OPS / "prometheus" / "coserve.test.yml").read_text()
    assert [one["alert"] for one in alerts() if f'"{one["alert"]}"' not in tried] == []


@pytest.mark.parametrize("alert", alerts(), ids=lambda one: one["alert"])
def test_each_alert_has_its_page(alert: dict[str, Any]) -> None:
    page = ROOT / alert["annotations"]["runbook"]
    assert page == RUNBOOK / f"{alert['alert']}.md"
    text = page.read_text()
    severity = alert["labels"]["severity"]
    assert text.startswith(f"# {alert['alert']}\n\n**{severity.capitalize()}.** ")
    assert "\n## Look\n" in text
    assert "\n## Do\n" in text
    index = (ROOT / "docs/operations/runbook.md").read_text()
    assert f"| [{alert['alert']}](runbook/{alert['alert']}.md) | {severity} |" in index


def test_there_is_no_page_without_its_alert() -> None:
    assert {page.stem for page in RUNBOOK.glob("*.md")} == {one["alert"] for one in alerts()}


async def exported(online: Online) -> dict[str, str]:
    """The families of a real scrape, with their kind; of an engine that reports, too."""
    online.engine.report = json.loads((ROOT / "tests/data/engine_report.json").read_text())
    await online.app.state.engines.probe()
    async with online.http() as http:
        body = online.chat("one two", stream=True)
        assert (await http.post("/v1/chat/completions", json=body)).status_code == 200
        said = (await http.get("/metrics")).text
    assert MODEL in said
    return dict(re.findall(r"^# TYPE (\S+) (\w+)$", said, re.MULTILINE))


def series_of(families: dict[str, str]) -> set[str]:
    ends = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
    return {name + end for name, kind in families.items() for end in ends.get(kind, ("",))}


async def test_alerts_and_dashboards_ask_for_metrics_that_exist(online: Online) -> None:
    known = series_of(await exported(online))
    asked = {name for rule in rules() for name in metrics_in(rule["expr"])}
    asked |= {name for one in DASHBOARDS for query in queries(one) for name in metrics_in(query)}
    assert len(asked) > 30
    assert sorted(asked - known) == []


def test_dashboards_are_whole() -> None:
    assert DASHBOARDS
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    for dashboard in DASHBOARDS:
        told = json.loads(dashboard.read_text())
        assert told["uid"] == dashboard.stem
        ids = [panel["id"] for panel in told["panels"]]
        assert len(set(ids)) == len(ids)
        boxes = [panel["gridPos"] for panel in told["panels"]]
        assert all(box["x"] + box["w"] <= 24 for box in boxes)
        used = {
            name for query in queries(dashboard) for name in re.findall(r"coserve:\S+:\w+", query)
        }
        assert used <= recorded
