"""Every kernel's name can be imported, none can be used."""

from __future__ import annotations

import importlib

import pytest

from engine_adapter.cpu_compat import sgl_kernel


def test_a_kernel_can_be_passed_around_but_not_called() -> None:
    kernel = sgl_kernel.silu_and_mul
    assert "silu_and_mul" in repr(kernel)
    with pytest.raises(sgl_kernel.KernelMissing, match="silu_and_mul needs CUDA"):
        kernel(1)
    with pytest.raises(sgl_kernel.KernelMissing, match=r"scalar_types\.uint4b8 needs CUDA"):
        sgl_kernel.scalar_types.uint4b8()


def test_submodules_are_made_as_they_are_asked_for() -> None:
    module = importlib.import_module("engine_adapter.cpu_compat.sgl_kernel.kvcacheio")
    with pytest.raises(sgl_kernel.KernelMissing, match="transfer_kv_all_layer"):
        module.transfer_kv_all_layer()


def test_special_names_are_absent_so_that_probing_works() -> None:
    assert not hasattr(sgl_kernel, "__torch_function__")
    assert not hasattr(sgl_kernel.rmsnorm, "__wrapped__")
