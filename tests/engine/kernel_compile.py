"""Compile the kernels for a GPU that is not here: Triton needs only its own compiler for that."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "kernels"))

import torch
from triton._C.libtriton import native_specialize_impl
from triton.backends.compiler import BaseBackend, GPUTarget
from triton.compiler import ASTSource, compile

from coserve_kernels.gather_pages import _gather
from coserve_kernels.scatter_pages import _scatter

# Llama-3.1-8B: 8 KV heads of 128 in bfloat16 are 256 lanes of 8 bytes. A single odd byte: 1 lane.
SHAPES = {"llama-8b": ("*i64", 256, 256), "odd": ("*i8", 3, 4)}
ARGUMENTS = {"planes": "*i64", "slots": "*i64", "num_tokens": "i32", "first_token": "i32"}


def variants(kernel: Any) -> int:
    """Kernels that are made for slots that begin anywhere in a list of free ones."""
    slots = next(one for one in kernel.params if one.name == "slots")
    free = torch.arange(64)
    keys = {
        native_specialize_impl(
            BaseBackend, free[first:], False, True, not slots.do_not_specialize_on_alignment
        )
        for first in range(4)
    }
    return len(keys)


def main() -> None:
    capability = int(sys.argv[1])
    found = {}
    for kernel, name in ((_gather, "gather"), (_scatter, "scatter")):
        for shape, (lanes, row, tile) in SHAPES.items():
            constants = {"row_lanes": row, "page_tokens": 16, "tile_tokens": 16, "tile_lanes": tile}
            signature = {
                argument: ARGUMENTS.get(argument, "constexpr")
                for argument in kernel.arg_names
                if argument != "staging"
            } | {"staging": lanes}
            source = ASTSource(kernel, signature=signature, constexprs=constants)
            made = compile(source, target=GPUTarget("cuda", capability, 32))
            found[f"{name} {shape}"] = {
                "variants": variants(kernel),
                "target": next(
                    line.split()[1]
                    for line in made.asm["ptx"].splitlines()
                    if line.startswith(".target")
                ),
                "machine_code_bytes": len(made.asm["cubin"]),
            }
    print("RESULTS " + json.dumps(found))


if __name__ == "__main__":
    main()
