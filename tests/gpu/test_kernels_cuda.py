"""The compiled kernels on a real CUDA device."""

from __future__ import annotations

import pytest

from coserve.setup.engine_env import has_cuda
from tests.engine.engine_scripts import run_script

pytestmark = pytest.mark.skipif(not has_cuda(), reason="needs an NVIDIA GPU")


def test_compiled_kernels_move_every_byte_where_the_oracle_does() -> None:
    assert run_script("kernel_cases.py", "cuda", 200)["cases"] == 205
