"""The parts of `make conformance`: each runs a suite in its own process and reads its report."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import httpx

from coserve.local.ports import free_port
from coserve.setup.conformance import (
    client_environment,
    conformance_node,
    conformance_python,
    conformance_tools,
)
from tests.conformance.arranger import arranged
from tests.conformance.clients import CLIENTS, SUITES, Client
from tests.conformance.live_stack import Live
from tests.conformance.results import Result, read_junit
from tests.conformance.suites import node_sdk_selection
from tests.conformance.suites.sdk_selection import DESELECTED, SELECTED
from tests.fixtures.response_events import ORDER
from tests.fixtures.supervised import ROOT, end_with_parent, wait_until

PYTHON: Final = conformance_python(ROOT)
TOOLS: Final = conformance_tools(ROOT)
SUITE_LIMIT_S: Final = 900.0
REAL_SUITE_LIMIT_S: Final = 1800.0
REAL_TEST_LIMIT_S: Final = 600
TIMED_OUT: Final = 124

SCHEMATHESIS_CHECKS: Final = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "use_after_free",
    "ignored_auth",
)
SCHEMATHESIS_EXAMPLES: Final = 25
REAL_ANSWER_TOKENS: Final = 4
"""Of an answer to a generated request, where a real model gives it."""


def _run(
    name: str,
    argv: Sequence[str | Path],
    report: Path,
    env: Mapping[str, str],
    cwd: Path = ROOT,
) -> Result:
    """A part that takes too long has failed, and those after it run."""
    limit_s = REAL_SUITE_LIMIT_S if env.get("CONFORMANCE_REAL") else SUITE_LIMIT_S
    try:
        exit_code = subprocess.run(
            [str(part) for part in argv],
            cwd=cwd,
            env=env,
            check=False,
            timeout=limit_s,
            preexec_fn=end_with_parent,
        ).returncode
    except subprocess.TimeoutExpired:
        exit_code = TIMED_OUT
    return read_junit(name, report, exit_code)


def _environment(live: Live, **more: str) -> dict[str, str]:
    """Ours without anything that could point a client elsewhere."""
    own = ("OPENAI_", "COSERVE_", "PYTEST_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    # What one test may take, instead of what stands in the suites' settings.
    patience = {"PYTEST_TIMEOUT": str(REAL_TEST_LIMIT_S)} if live.real else {}
    return {**kept, **live.environment(), "CONFORMANCE_ORDER": str(ORDER), **patience, **more}


def _pytest(config: Path, report: Path, root: Path = SUITES) -> list[str | Path]:
    return [
        PYTHON, "-m", "pytest", "-q", "-c", config, "--rootdir", root, "--confcutdir", root,
        f"--junitxml={report}", "-p", "no:cacheprovider",
    ]  # fmt: skip


def python_client(live: Live, folder: Path) -> Result:
    """Our scenarios with the official Python client: sync, async, raw, streaming, aiohttp."""
    report = folder / "python.xml"
    argv = [*_pytest(SUITES / "pytest.ini", report), SUITES / "client_scenarios.py"]
    return _run("python client", argv, report, _environment(live))


def node_client(live: Live, folder: Path) -> Result:
    """Our scenarios with the official Node client."""
    report = folder / "node.xml"
    argv: list[str | Path] = [
        _node(), "--test", "--test-reporter=junit", f"--test-reporter-destination={report}",
        SUITES / "node_scenarios.mjs",
    ]  # fmt: skip
    return _run("node client", argv, report, _environment(live, CONFORMANCE_TOOLS=str(TOOLS)))


def agents(live: Live, folder: Path) -> Result:
    """Agent frameworks at their defaults, each finishing a job with a call of a tool."""
    report = folder / "agents.xml"
    argv = [*_pytest(SUITES / "pytest.ini", report), SUITES / "agent_scenarios.py"]
    return _run("agents", argv, report, _environment(live))


def agents_node(live: Live, folder: Path) -> Result:
    """The same with the AI SDK."""
    report = folder / "agents_node.xml"
    argv: list[str | Path] = [
        _node(), "--test", "--test-reporter=junit", f"--test-reporter-destination={report}",
        SUITES / "agent_scenarios.mjs",
    ]  # fmt: skip
    return _run("agents, Node", argv, report, _environment(live, CONFORMANCE_TOOLS=str(TOOLS)))


def own_client(client: Client, live: Live, folder: Path) -> Result:
    """A client in an environment of its own."""
    tools = client_environment(ROOT, client.name)
    report = folder / f"{client.name}.xml"
    argv = [*_pytest(SUITES / "pytest.ini", report), client.scenario]
    own = tools / "bin" / "python"
    if own.exists():
        argv[0] = own
    more = {"CONFORMANCE_TOOLS": str(tools), "CONFORMANCE_NODE": str(_node())}
    return _run(client.name, argv, report, _environment(live, **more))


def sdk_tests(live: Live, folder: Path) -> Result:
    """The Python client's own tests of what we serve, their placeholders arranged for."""
    report = folder / "sdk.xml"
    tests = TOOLS / "openai-python"
    deselected = [f"--deselect={node}" for one in DESELECTED for node in one["tests"]]
    selected = [one for one in SELECTED if live.embedder or "embeddings" not in one]
    env = _environment(live)
    with arranged(live) as url:
        argv = [*_pytest(SUITES / "sdk.ini", report, tests), *deselected, *selected]
        env["TEST_API_BASE_URL"] = url
        result = _run("openai-python tests", argv, report, env, tests)
    result.notes["deselect_patterns"] = sum(len(one["tests"]) for one in DESELECTED)
    return result


def node_sdk_tests(live: Live, folder: Path) -> Result:
    """The same of the Node client, whose package has no tests: those of a checkout.

    Raises:
        SystemExit: None is named.
    """
    checkout = os.environ.get(NODE_CHECKOUT)
    if not checkout:
        raise SystemExit(f"{NODE_CHECKOUT} must name a checkout of openai-node")
    report = folder / "node_sdk.xml"
    # Beside the installed client, which is what they then import, and as its modules are.
    tests = TOOLS / "openai-node"
    shutil.rmtree(tests, ignore_errors=True)
    for one in node_sdk_selection.SELECTED:
        (tests / one).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(checkout) / one, tests / one)
    globals_ = tests / "globals.mjs"
    shutil.copy(SUITES / "node_sdk_globals.mjs", globals_)
    selected = [
        one for one in node_sdk_selection.SELECTED if live.embedder or "embeddings" not in one
    ]
    with arranged(live) as url:
        argv: list[str | Path] = [
            _node(), "--test", "--import", globals_, "--test-concurrency=1",
            f"--test-skip-pattern={node_sdk_selection.skip_pattern()}",
            "--test-reporter=junit", f"--test-reporter-destination={report}", *selected,
        ]  # fmt: skip
        env = _environment(live, TEST_API_BASE_URL=url)
        return _run("openai-node tests", argv, report, env, tests)


def validating_proxy(live: Live, folder: Path) -> Result:
    """Every kind of call through Prism, which compares both directions with the description."""
    description = folder / "official.json"
    subprocess.run(
        [PYTHON, SUITES / "official_description.py", description], check=True, timeout=120
    )
    report = folder / "prism.xml"
    with _prism(description, live.url) as url:
        argv = [*_pytest(SUITES / "pytest.ini", report), SUITES / "through_prism.py"]
        return _run("prism", argv, report, _environment(live, CONFORMANCE_PROXY=url))


def schemathesis(live: Live, folder: Path) -> Result:
    """Generated requests to every documented operation."""
    report = folder / "schemathesis.xml"
    argv: list[str | Path] = [
        PYTHON.parent / "schemathesis", "run", f"{live.url}/openapi.json",
        "--header", f"Authorization: Bearer {live.key}",
        "--checks", ",".join(SCHEMATHESIS_CHECKS),
        "--max-examples", str(SCHEMATHESIS_EXAMPLES), "--seed", "1",
        "--suppress-health-check", "all", "--warnings", "off",
        "--report", "junit", "--report-junit-path", report, "--no-color",
    ]  # fmt: skip
    env = _environment(live)
    if live.real:
        env |= {"SCHEMATHESIS_HOOKS": "short_answers", "PYTHONPATH": str(SUITES)}
        env["CONFORMANCE_ANSWER_TOKENS"] = str(REAL_ANSWER_TOKENS)
    result = _run("schemathesis", argv, report, env, folder)
    result.notes["checks"] = list(SCHEMATHESIS_CHECKS)
    if live.real:
        result.notes["answers"] = f"{REAL_ANSWER_TOKENS} tokens at most"
    return result


@contextmanager
def _prism(description: Path, upstream: str) -> Iterator[str]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    cli = TOOLS / "node_modules" / "@stoplight" / "prism-cli" / "dist" / "index.js"
    argv = [_node(), cli, "proxy", description, upstream, "--port", str(port), "-h", "127.0.0.1"]
    log = description.with_suffix(".log")
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(part) for part in argv],
            stdout=out,
            stderr=subprocess.STDOUT,
            preexec_fn=end_with_parent,
        )
    try:
        wait_until(lambda: _answers(url) or process.poll() is not None, "Prism answers", 60)
        assert process.poll() is None, log.read_text()[-2000:]
        yield url
    finally:
        process.terminate()
        process.wait(10)


def _node() -> Path:
    return conformance_node(ROOT) / "bin" / "node"


def _answers(url: str) -> bool:
    try:
        httpx.get(f"{url}/healthz", timeout=5)
    except httpx.HTTPError:
        return False
    return True


NODE_CHECKOUT: Final = "OPENAI_NODE"
"""Names a checkout of openai-node: its tests are in no package."""

Part = Callable[[Live, Path], Result]
ASKED_FOR: Final[dict[str, Part]] = {"sdk-node": node_sdk_tests}
"""Parts that run only when they are named."""

PARTS: Final[dict[str, Part]] = {
    "python": python_client,
    "node": node_client,
    "agents": agents,
    "agents-node": agents_node,
    "sdk": sdk_tests,
    "prism": validating_proxy,
    "schemathesis": schemathesis,
    **{client.name: partial(own_client, client) for client in CLIENTS},
}
NOT_REAL: Final = frozenset(client.name for client in CLIENTS if not client.real)
"""Parts that a whole run with a real model leaves out."""
