"""Stand-in for SGLang's CUDA kernel package on hosts without CUDA.

SGLang imports these names at load time and, for a dense model on the CPU, never calls them. Every
attribute therefore exists, and using one raises a sentence that names it. Submodules
(`sgl_kernel.kvcacheio`) are made the same way by a finder.

`torch.ops.sgl_kernel.convert_weight_packed` must stay undefined: SGLang switches to AMX kernels,
which are not here, when it sees it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

__version__ = "0.4.5"


class KernelMissing(RuntimeError):
    """A CUDA kernel was called on a host without CUDA."""


class MissingKernel:
    """A name that may be imported and passed around, but not used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse.

        Raises:
            KernelMissing: Always.
        """
        raise KernelMissing(f"{self._name} needs CUDA; this engine runs on the CPU")

    def __getattr__(self, name: str) -> MissingKernel:
        if name.startswith("__"):
            raise AttributeError(name)
        return MissingKernel(f"{self._name}.{name}")

    def __repr__(self) -> str:
        return f"<missing kernel {self._name}>"


class _KernelModule(ModuleType):
    def __getattr__(self, name: str) -> MissingKernel:
        if name.startswith("__"):
            raise AttributeError(name)
        return MissingKernel(f"{self.__name__}.{name}")


class _Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes any `sgl_kernel.x` that does not exist as a file."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(f"{__name__}."):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _KernelModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        return None


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _KERNELS.get(name) or MissingKernel(f"{__name__}.{name}")


def _assign_req_to_token_pool_cpu(
    req_pool_indices: Any,
    req_to_token: Any,
    start_offset: Any,
    end_offset: Any,
    out_cache_loc: Any,
    pool_len: int,
) -> None:
    """Write each request's new slots into its row of the slot table, columns start to end."""
    taken = 0
    rows = zip(req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=False)
    for row, start, end in rows:
        num_slots = end - start
        req_to_token[row, start:end] = out_cache_loc[taken : taken + num_slots].to(
            req_to_token.dtype
        )
        taken += num_slots


_KERNELS: dict[str, Any] = {"assign_req_to_token_pool_cpu": _assign_req_to_token_pool_cpu}

sys.meta_path.append(_Submodules())
