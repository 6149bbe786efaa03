"""What the definition of a kernel needs of Triton is there; nothing can be launched."""

# mypy: disable-error-code="untyped-decorator, name-defined"
from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from engine_adapter.cpu_compat import triton_stub


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in [name for name in sys.modules if name.partition(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [triton_stub._Modules()])
    yield importlib.import_module("triton")
    for name in [name for name in sys.modules if name.partition(".")[0] == "triton"]:
        del sys.modules[name]


def test_a_kernel_is_defined_in_every_way_and_refuses_to_be_launched(triton: Any) -> None:
    tl = triton.language

    @triton.jit
    def plain(x: tl.tensor, block: tl.constexpr = 4) -> None:
        del x, block

    @triton.autotune(configs=[triton.Config({"BLOCK": 4}, num_warps=2)], key=["n"])
    @triton.heuristics({"EVEN": lambda args: True})
    @triton.jit(do_not_specialize=["n"])
    def tuned(n: int) -> None:
        """What it computes."""
        del n

    for kernel in (plain, tuned):
        with pytest.raises(RuntimeError, match=f"{kernel.__name__} needs Triton"):
            kernel[(1,)](1)
    assert tuned.__doc__ == "What it computes."
    assert tuned.fn(1) is None


def test_names_are_classes_to_derive_from_and_to_look_for(triton: Any) -> None:
    class Mine(triton.runtime.jit.JITFunction):  # type: ignore[misc]
        def __init__(self, number: int) -> None:
            self.number = number

    assert Mine(3).number == 3
    assert not isinstance(3, triton.language.dtype)
    assert (triton.compiler.CompiledKernel | int).__args__[1] is int
    table = {triton.language.float32: 1, triton.language.bfloat16: 2}
    assert sorted(table.values()) == [1, 2]


@pytest.mark.parametrize(
    "name", ["triton.language.extra.libdevice", "triton.backends.compiler", "triton.knobs"]
)
def test_every_module_can_be_imported(triton: Any, name: str) -> None:
    assert importlib.import_module(name).__name__ == name


def test_sizes_of_grids_are_computed(triton: Any) -> None:
    assert [triton.cdiv(n, 4) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]
    assert [triton.next_power_of_2(n) for n in (1, 2, 3, 64, 65)] == [1, 2, 4, 64, 128]


def test_who_asks_for_the_device_hears_that_there_is_none(triton: Any) -> None:
    with pytest.raises(RuntimeError, match="0 active drivers"):
        _ = triton.runtime.driver.active
