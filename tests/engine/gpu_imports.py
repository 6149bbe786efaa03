"""Import what the GPU run imports, as on a Hopper card, with the packages of host and bundle alone.

Runs in the engine's venv with Triton on its path: ``gpu_imports.py``. CUDA is faked as far as
imports look at it, and so is sgl_kernel. Prints ``RESULTS {"imported": [...], "missing": [...]}``.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import os
import re
import sys
import traceback
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "bench" / "gpu"
OURS = {"api", "bench", "coserve", "coserve_kernels", "engine_adapter", "lab", "service", "tests"}
FAKED = {"sgl_kernel", "flashinfer", "IPython"}
MODULES = (
    "sglang.srt.managers.scheduler",
    "sglang.srt.managers.detokenizer_manager",
    "sglang.srt.entrypoints.http_server",
    "sglang.srt.models.llama",
    "sglang.srt.layers.attention.triton_backend",
    "sglang.srt.model_executor.runner.decode_cuda_graph_runner",
    "sglang.srt.model_executor.runner.prefill_cuda_graph_runner",
    "engine_adapter.sglang.plugin",
    "engine_adapter.sglang.coserving",
    "coserve_kernels.staged_mover",
    "tests.engine.scheduler_rig",
    "tests.engine.coserving_scenarios",
    "tests.engine.coserving_debt",
    "tests.engine.kernel_cases",
    "bench.gpu.bandwidth",
    "bench.gpu.run_ahead",
    "bench.gpu.mechanisms",
    "bench.gpu.syncs",
    "bench.gpu.one_engine",
    "bench.coserve_bench.__main__",
)


def allowed() -> set[str]:
    """Distributions that are there, by their names in lower case."""
    names = set()
    for file in ("packages.txt", "host_packages.txt"):
        for line in (FOLDER / file).read_text().splitlines():
            name = re.split("[=#]", line)[0].strip()
            if name:
                names.add(name.lower().replace("_", "-"))
    return names


class Denying(importlib.abc.MetaPathFinder):
    """Looks where Python looks, but for packages that are not there."""

    def __init__(self) -> None:
        self.missing: set[str] = set()
        self._known = allowed()
        self._owners = packages_distributions()

    find_distributions = staticmethod(importlib.machinery.PathFinder.find_distributions)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """As Python's finder of files, which it stands in for."""
        top = name.partition(".")[0]
        if top in FAKED:
            return importlib.machinery.ModuleSpec(name, Everything(), is_package=True)
        owners = {owner.lower().replace("_", "-") for owner in self._owners.get(top, ())}
        if not owners or top in OURS or top in sys.stdlib_module_names or owners & self._known:
            return importlib.machinery.PathFinder.find_spec(name, path, target)
        self.missing.add(top)
        return None


class Everything(importlib.abc.Loader):
    """Loads a module that has every attribute."""

    def create_module(self, spec: Any) -> ModuleType:
        """One whose attributes are functions that return nothing."""
        module = ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = attribute  # type: ignore[method-assign]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


class Anything:
    """What a faked module has under each name: also a class to derive from."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return attribute(name)

    def __call__(self, *_args: Any, **_kwargs: Any) -> Any:
        return self

    def __hash__(self) -> int:
        return id(self)


def attribute(name: str) -> Any:
    """What a faked module has under a name."""
    if name.startswith("__"):
        raise AttributeError(name)
    return Anything()


def fake_cuda() -> None:
    """A Hopper card, as far as imports look at it."""
    import torch

    properties = SimpleNamespace(
        major=9, minor=0, name="faked", total_memory=141 << 30, multi_processor_count=132
    )
    answers = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_capability": (9, 0),
        "get_device_name": "NVIDIA H200",
        "get_device_properties": properties,
        "mem_get_info": (140 << 30, 141 << 30),
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *_args, answer=answer, **_kwargs: answer)
    torch.version.cuda = "13.0"


def main() -> None:
    """Import all, and say what was asked for in vain."""
    os.environ |= {"COSERVE_RIG_DEVICE": "cuda", "SGLANG_USE_CPU_ENGINE": "0"}
    sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]
    fake_cuda()
    denied = Denying()
    finders = [finder for finder in sys.meta_path if finder is not importlib.machinery.PathFinder]
    sys.meta_path[:] = [*finders, denied]
    imported, failed = [], {}
    for name in MODULES:
        try:
            importlib.import_module(name)
            imported.append(name)
        except Exception:  # noqa: BLE001 - all are told
            failed[name] = traceback.format_exc()[-1500:]
    told = {"imported": imported, "failed": failed, "missing": sorted(denied.missing)}
    print("RESULTS " + json.dumps(told))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
