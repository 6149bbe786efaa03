"""SGLang's kernels that it compiles on the card, built before, without a card.

    export CUDA_HOME=... PATH=FOLDER_OF_NINJA:$PATH
    .venv-engine-0.5.16/bin/python -m bench.gpu.jit_kernels OUT

Needs nvcc 13 and ninja: pip's nvidia-cuda-nvcc, -crt, -cccl, -runtime and nvidia-nvvm do. SGLang
looks for a module in a folder named after its sources, its template arguments, the card's
architecture and tvm-ffi, so what is built here is loaded there. Each takes half a minute or more;
those that are there are not built again.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench.gpu.geometry import GEOMETRIES, GPU_RIG

ARCHITECTURE = (9, 0, "a")
"""Hopper, as SGLang names it."""

BYTES = 2
"""Of a bfloat16."""


def wanted() -> list[tuple[str, str, tuple[Any, ...]]]:
    """Module of `sglang.jit_kernel`, function that builds, its arguments, by what a start needs.

    For the large geometry, and what the rig's model needs beside it. ``"bf16"`` stands for torch's.
    """
    found: list[tuple[str, str, tuple[Any, ...]]] = []
    for shape in (GEOMETRIES["llama-3.1-8b"], GPU_RIG):
        row_bytes = shape["num_key_value_heads"] * shape["head_dim"] * BYTES
        found += [
            ("norm", "_jit_fused_add_rmsnorm_module", ("bf16", False)),
            ("norm", "_jit_rmsnorm_module", (shape["hidden_size"], "bf16")),
            ("rope", "_jit_fused_rope_module", (True, shape["head_dim"], "bf16")),
            ("activation", "_jit_activation_module", ("bf16",)),
            ("kvcache", "_jit_kvcache_module", (row_bytes,)),
        ]
    return list(dict.fromkeys(found))


def builders() -> Iterator[tuple[str, Callable[[], Any]]]:
    """What to call for each, by its name."""
    import torch

    for module, function, args in wanted():
        made = tuple(torch.bfloat16 if arg == "bf16" else arg for arg in args)
        build = getattr(importlib.import_module(f"sglang.jit_kernel.{module}"), function)
        yield f"{module}.{function}{args}", partial(build, *made)


def main() -> int:
    """Build what is missing; 1 if one could not be built."""
    out = Path(sys.argv[1]).absolute()
    out.mkdir(parents=True, exist_ok=True)
    os.environ["TVM_FFI_CACHE_DIR"] = str(out)
    from sglang.jit_kernel.utils import override_jit_cuda_arch

    well = True
    with override_jit_cuda_arch(*ARCHITECTURE):
        for name, build in builders():
            begun_s = time.monotonic()
            before = {library.parent for library in out.glob("*/*.so")}
            try:
                build()
            except Exception as error:  # noqa: BLE001 - a module is built, and cannot be loaded here
                if {library.parent for library in out.glob("*/*.so")} == before:
                    well = False
                    print(f"{name}: {error}", flush=True)
                    continue
            print(f"{name}: {time.monotonic() - begun_s:.0f} s", flush=True)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
