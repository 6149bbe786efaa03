"""The entry of the engine's image, where a LeaderWorkerSet spreads a model over nodes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

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
