"""Runs at the start of every interpreter of the engine's environment on a host without CUDA.

A `.pth` line imports this module, so spawned children get it too. It must cost nothing: it puts
one finder in front of the import system and imports nothing heavy. Just before the first import of

    torchvision   it declares the two operators whose compiled library does not load beside a CPU
                  build of torch (transformers needs the real package, never these operators);
    sglang        it installs a stand-in for Triton, if Triton is not there.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

_libraries: list[Any] = []


class FirstImport(importlib.abc.MetaPathFinder):
    """Never finds anything; acts just before the first import of a package."""

    def __init__(self) -> None:
        self._pending = {"torchvision": _declare_torchvision_ops, "sglang": _stand_in_for_triton}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """None, always: the next finder finds the package."""
        act = self._pending.pop(fullname, None)
        if act is not None:
            act()
        if not self._pending and self in sys.meta_path:
            sys.meta_path.remove(self)
        return None


def install() -> None:
    """Put the finder first; a second call does nothing."""
    if not any(isinstance(finder, FirstImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, FirstImport())


def _declare_torchvision_ops() -> None:
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define(
        "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    )
    _libraries.append(library)  # the declarations live as long as the object


def _stand_in_for_triton() -> None:
    if importlib.util.find_spec("triton") is not None:
        return
    from engine_adapter.cpu_compat import triton_stub

    triton_stub.install()


install()
