"""The compiled kernels on a real CUDA device."""

from __future__ import annotations

import pytest

from coserve.setup.engine_env import has_cuda
from tests.engine.test_kernels import run_with_triton

pytestmark = pytest.mark.skipif(not has_cuda(), reason="needs an NVIDIA GPU")


def test_compiled_kernels_move_every_byte_where_the_oracle_does() -> None:
    assert run_with_triton("kernel_cases.py", "cuda", 200, env={})["cases"] == 205
