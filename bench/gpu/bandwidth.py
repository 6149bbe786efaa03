"""How fast KV checkpoints travel, what pinning takes, and what copies do to each other.

Runs in the engine's interpreter on a CUDA host, with the geometry of Llama-3.1-8B. Times are taken
on the host from the call to the end of all streams, median of the repeats; bytes are counted once.

    ways      our kernels, plain torch, and SGLang's own transfer kernel, by pages
    crowded   the same copies while products of matrices run on another stream
    pinning   seconds to allocate page-locked memory, in one piece and in pieces of 1 GiB
    behind    a small copy to the host that is asked for behind a large one on another stream, as
              sampled tokens are behind checkpoints
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from coserve_kernels.gather_pages import gather_pages
from coserve_kernels.page_shape import PageShape
from coserve_kernels.reference import gather_pages_reference
from coserve_kernels.scatter_pages import scatter_pages
from coserve_kernels.staged_mover import CudaStreams, StagedMover

LAYERS, HEADS, HEAD_DIM, PAGE_TOKENS = 32, 8, 128, 16
NUM_SLOTS, HOST_PAGES, REPEATS = 65_536, 512, 7
GIB = 1 << 30
PAPER_GB_PER_S = 37.0


def median_s(
    work: Callable[[], Any],
    beside: Callable[[], Any] = lambda: None,
    wait: Callable[[], Any] = torch.cuda.synchronize,
) -> float:
    """Seconds of one call with what it waits for; what is started beside it is not timed."""
    times = []
    for repeat in range(REPEATS + 2):
        torch.cuda.synchronize()
        beside()
        begun = time.perf_counter()
        work()
        wait()
        if repeat >= 2:  # the first ones compile and warm up
            times.append(time.perf_counter() - begun)
    return statistics.median(times)


class Buffers:
    """KV on the device and pages on the host, made once."""

    def __init__(self) -> None:
        shape = (NUM_SLOTS, HEADS, HEAD_DIM)
        self.keys, self.values = (
            [torch.randn(shape, dtype=torch.bfloat16, device="cuda") for _ in range(LAYERS)]
            for _ in range(2)
        )
        self.pages = torch.empty(
            (HOST_PAGES, 2, LAYERS, PAGE_TOKENS, HEADS, HEAD_DIM),
            dtype=torch.bfloat16,
            pin_memory=True,
        )


def measure(buffers: Buffers, num_pages: int, *, crowded: bool = False) -> dict[str, Any]:
    """All ways of moving ``num_pages`` pages of random slots, in GB/s.

    Args:
        buffers: What is moved.
        num_pages: Pages.
        crowded: Whether products run on another stream meanwhile; then only ours are measured.
    """
    keys, values, pages = buffers.keys, buffers.values, buffers.pages
    layout = PageShape.of(pages)
    tokens = num_pages * PAGE_TOKENS
    slots = torch.randperm(NUM_SLOTS, device="cuda")[:tokens]
    neighbours = list(range(num_pages))
    scattered = torch.randperm(HOST_PAGES)[:num_pages].tolist()
    mover = StagedMover(keys, values, pages, CudaStreams(None))
    planes = torch.tensor(
        [plane.data_ptr() for plane in (*keys, *values)], dtype=torch.int64, device="cuda"
    )
    staging = torch.empty((num_pages, layout.page_lanes), dtype=layout.lane_type, device="cuda")
    host = torch.empty_like(staging, device="cpu").pin_memory()
    ways: dict[str, Callable[[], Any]] = {
        "gather_only": lambda: gather_pages(planes, slots, staging, layout),
        "scatter_only": lambda: scatter_pages(planes, slots, staging, layout),
        "copy_only_to_host": lambda: host.copy_(staging, non_blocking=True),
        "copy_only_to_device": lambda: staging.copy_(host, non_blocking=True),
        "store": lambda: mover.store(slots, neighbours),
        "store_scattered_pages": lambda: mover.store(slots, scattered),
        "load": lambda: mover.load(slots, neighbours),
        "torch_index_and_copy": lambda: gather_pages_reference(
            keys, values, slots, pages, neighbours
        ),
    }
    found: dict[str, Any] = {"pages": num_pages, "bytes": num_pages * layout.page_bytes}
    if crowded:
        ways, start = {name: ways[name] for name in ("store", "load")}, products()
    for name, work in ways.items():
        seconds = median_s(work, start, mover.wait) if crowded else median_s(work)
        found[name] = {"ms": seconds * 1e3, "gb_per_s": found["bytes"] / seconds / 1e9}
    if not crowded:
        found["sglang_transfer"] = sglang_transfer(keys, values, slots, found["bytes"])
    return found


def products() -> Callable[[], Any]:
    """Starts products on a stream of their own that last longer than what is measured."""
    stream = torch.cuda.Stream()
    left = torch.randn((8192, 8192), dtype=torch.bfloat16, device="cuda")

    def start() -> None:
        with torch.cuda.stream(stream):
            for _ in range(12):
                left @ left

    return start


def pinning() -> list[dict[str, Any]]:
    """Seconds to allocate page-locked memory."""
    found = []
    for gib, pieces in ((2, 1), (16, 1), (16, 16)):
        begun = time.perf_counter()
        held = [
            torch.empty(gib * GIB // pieces, dtype=torch.uint8, pin_memory=True)
            for _ in range(pieces)
        ]
        found.append({"gib": gib, "pieces": pieces, "seconds": time.perf_counter() - begun})
        del held
        torch._C._host_emptyCache()
    return found


def behind() -> dict[str, float]:
    """Milliseconds of a copy of 1 KiB to the host, alone and behind one of 1 GiB."""
    large, small = (torch.empty(size, dtype=torch.uint8, device="cuda") for size in (GIB, 1024))
    to_large, to_small = (
        torch.empty(size, dtype=torch.uint8, pin_memory=True) for size in (GIB, 1024)
    )
    one, other = torch.cuda.Stream(), torch.cuda.Stream()
    found = {}
    for name, first in (("alone", False), ("behind_1_gib", True), ("behind_1_gib_in_4_mib", True)):
        torch.cuda.synchronize()
        if first:
            step = 4 << 20 if name.endswith("4_mib") else GIB
            with torch.cuda.stream(one):
                for at in range(0, GIB, step):
                    to_large[at : at + step].copy_(large[at : at + step], non_blocking=True)
        begun = time.perf_counter()
        with torch.cuda.stream(other):
            to_small.copy_(small, non_blocking=True)
            other.synchronize()
        found[f"{name}_ms"] = 1e3 * (time.perf_counter() - begun)
    torch.cuda.synchronize()
    return found


def sglang_transfer(
    keys: list[torch.Tensor], values: list[torch.Tensor], slots: torch.Tensor, size: int
) -> dict[str, Any]:
    """SGLang's kernel that writes to pinned host memory, layer by layer layout."""
    try:
        from sgl_kernel.kvcacheio import transfer_kv_all_layer
    except ImportError as error:
        return {"not_run": str(error)}
    tokens, row_bytes = slots.shape[0], keys[0][0].numel() * keys[0].element_size()
    host = [
        torch.empty((LAYERS, tokens, HEADS, HEAD_DIM), dtype=torch.bfloat16).pin_memory()
        for _ in range(2)
    ]

    def addresses(planes: Any) -> torch.Tensor:
        return torch.tensor([p.data_ptr() for p in planes], dtype=torch.uint64, device="cuda")

    pointers = [addresses(planes) for planes in (keys, host[0], values, host[1])]
    targets = torch.arange(tokens, device="cuda")

    def work() -> None:
        transfer_kv_all_layer(
            src_k_layers=pointers[0],
            dst_k_layers=pointers[1],
            src_v_layers=pointers[2],
            dst_v_layers=pointers[3],
            src_indices=slots,
            dst_indices=targets,
            item_size=row_bytes,
            num_layers=LAYERS,
        )

    seconds = median_s(work)
    return {"ms": seconds * 1e3, "gb_per_s": size / seconds / 1e9}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pages", default="16,64,256")
    args = parser.parse_args()
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "paper_gb_per_s": PAPER_GB_PER_S,
        "rows": [],
    }
    buffers = Buffers()
    for num_pages in map(int, args.pages.split(",")):
        result["rows"].append(measure(buffers, num_pages))
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    for name, work in (
        ("crowded", lambda: measure(buffers, num_pages, crowded=True)),
        ("behind", behind),
        ("pinning", pinning),
    ):
        result[name] = work()
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    print("RESULTS " + json.dumps({name: result[name] for name in ("pinning", "behind")}))


if __name__ == "__main__":
    main()
