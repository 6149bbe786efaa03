"""Stand-in for Triton where there is none: SGLang imports it everywhere and compiles nothing.

Each module `triton.x` can be imported, and each name in one of them can be used as what the
definition of a kernel needs, which is executed when SGLang's modules are imported::

    @triton.jit                              a function becomes a kernel that refuses to be launched
    @triton.autotune(configs=[...], key=[])  a call gives a name again, and that takes the function
    class Mine(triton.runtime.JITFunction)   a name is a class
    x: tl.constexpr                          and so is of use in annotations, unions and isinstance

Sizes of grids are computed by the host, so `cdiv` and `next_power_of_2` compute. Who asks for the
device is told that there is none, as Triton does without one.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import FunctionType, ModuleType
from typing import Any, NoReturn

PACKAGE = "triton"
VERSION = "3.0.0"
SUBMODULES = ("backends", "compiler", "experimental", "knobs", "language", "runtime", "testing")
"""Triton imports these itself: `triton.language` needs no import of its own."""


class Kernel:
    """A kernel that was defined and cannot be launched."""

    def __init__(self, function: Any) -> None:
        self.fn = function
        self.__name__ = getattr(function, "__name__", "kernel")
        self.__doc__ = getattr(function, "__doc__", None)

    def __getitem__(self, grid: object) -> Kernel:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError(f"{self.__name__} needs Triton; this engine runs on the CPU")

    run = warmup = __call__


class Name(type):
    """The class of every name; names made here are told from classes that others derive."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return named(name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if "is_stand_in" not in vars(cls):
            return super().__call__(*args, **kwargs)
        if len(args) == 1 and not kwargs and isinstance(args[0], FunctionType | Kernel):
            return args[0] if isinstance(args[0], Kernel) else Kernel(args[0])
        return named(cls.__name__)


def named(name: str) -> Any:
    """A name of Triton's."""
    return Name(name, (), {"is_stand_in": True, "__init__": lambda self, *args, **kwargs: None})


class _NoDriver:
    @property
    def active(self) -> NoReturn:
        """Refuse.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError("0 active drivers: there is no device for Triton")


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.__name__ == PACKAGE and name in SUBMODULES:
            return importlib.import_module(f"{PACKAGE}.{name}")
        found = named(name)
        setattr(self, name, found)
        return found


class _Modules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != PACKAGE:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == f"{PACKAGE}.runtime":
            vars(module).update(driver=_NoDriver())
        if module.__name__ == PACKAGE:
            vars(module).update(__version__=VERSION, cdiv=_cdiv, next_power_of_2=_next_power_of_2)


def install() -> None:
    """Let `import triton` find this; a Triton that is there goes first."""
    if not any(isinstance(finder, _Modules) for finder in sys.meta_path):
        sys.meta_path.append(_Modules())


def _cdiv(number: int, by: int) -> int:
    return -(-number // by)


def _next_power_of_2(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()
