"""The entry of the engine's image: a model over nodes, and what it refuses to start with."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from engine_adapter.refusal import EXIT_REFUSED, PREFIX

ENTRY = Path(__file__).parents[2] / "docker" / "engine_entry.py"


@pytest.fixture(scope="module")
def entry() -> ModuleType:
    spec = importlib.util.spec_from_file_location("engine_entry", ENTRY)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_engine_alone_is_spread_over_nothing(entry: ModuleType) -> None:
    assert entry.nodes_of({}) == (1, ())
    assert entry.nodes_of({"LWS_GROUP_SIZE": "1"}) == (1, ())


def test_a_group_of_pods_is_one_model(entry: ModuleType) -> None:
    told = {
        "LWS_GROUP_SIZE": "2",
        "LWS_WORKER_INDEX": "1",
        "LWS_LEADER_ADDRESS": "llama-0.llama.llm",
    }
    num, arguments = entry.nodes_of(told)
    assert num == 2
    assert arguments == (
        "--nnodes", "2", "--node-rank", "1", "--dist-init-addr", "llama-0.llama.llm:20000",
    )  # fmt: skip


def test_a_group_without_a_leader_is_an_error(entry: ModuleType) -> None:
    with pytest.raises(KeyError, match="LWS_LEADER_ADDRESS"):
        entry.nodes_of({"LWS_GROUP_SIZE": "2"})


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text("{}")
    return str(tmp_path)


def no_library(name: str) -> Any:
    raise OSError(f"{name}: cannot open shared object file")


def driver_with(num: int, status: int = 0) -> Any:
    def count(found: Any) -> int:
        found._obj.value = num
        return 0

    return lambda name: SimpleNamespace(cuInit=lambda flags: status, cuDeviceGetCount=count)


def test_gpus_are_counted_by_the_driver_without_torch(entry: ModuleType) -> None:
    assert entry.num_gpus(no_library) == 0
    assert entry.num_gpus(driver_with(2)) == 2
    assert entry.num_gpus(driver_with(2, status=100)) == 0, "a driver that finds no device"


@pytest.mark.parametrize(
    ("told", "found", "why"),
    [
        ({}, 1, ""),
        ({"COSERVE_ENGINE_GPUS": "2"}, 2, ""),
        ({}, 0, "no CUDA device"),
        ({"COSERVE_ENGINE_GPUS": "4"}, 2, "COSERVE_ENGINE_GPUS is 4, and 2 are visible"),
        ({"COSERVE_ENGINE_DEVICE": "cpu"}, 0, ""),
        ({"COSERVE_ENGINE_DEVICE": "gpu"}, 1, "COSERVE_ENGINE_DEVICE is 'gpu'"),
        ({"COSERVE_MODEL": "/nowhere"}, 1, "there is no model in /nowhere"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_loaded(
    entry: ModuleType, model: str, told: dict[str, str], found: int, why: str
) -> None:
    said = entry.why_not({"COSERVE_MODEL": model, **told}, lambda: found)
    assert why in said
    assert bool(why) == bool(said)


def test_an_empty_folder_is_no_model(entry: ModuleType, tmp_path: Path) -> None:
    said = entry.why_not({"COSERVE_MODEL": str(tmp_path)}, lambda: 1)
    assert said.startswith(f"there is no model in {tmp_path}")


def test_a_refusal_is_one_line_and_the_status_of_an_engine_that_refuses() -> None:
    env = {**os.environ, "COSERVE_ENGINE_DEVICE": "cpu", "COSERVE_MODEL": "/nowhere"}
    env["PYTHONPATH"] = str(ENTRY.parents[1])
    done = subprocess.run(
        [sys.executable, ENTRY], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == EXIT_REFUSED
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{PREFIX}there is no model in /nowhere")
