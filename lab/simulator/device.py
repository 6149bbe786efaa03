"""What is simulated: a GPU out of a table, or the machine a stored profile was measured on."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from engine_adapter.gpu_tables.gpu_table import (
    CUDA_GRAPH_BATCH_SIZES,
    DEFAULT_HOST_S,
    GpuTable,
    GpuTableError,
    GpuTimes,
    gpu_table_names,
    load_gpu_table,
)
from engine_adapter.scheduling.derive import GROUPS_IN_FLIGHT
from engine_adapter.scheduling.fit import Sample, fit_model, make_grid
from engine_adapter.scheduling.latency import LatencyModel, StepLoad
from engine_adapter.scheduling.profile import Profile, ProfileError, load_profile
from engine_adapter.scheduling.snapshot import EngineLimits
from lab.simulator.shape import EngineShape
from lab.simulator.times import ProfiledTimes, StepTimes, TableTimes

LINK_SHARE = 0.8
"""Share of a host link's nominal speed that copies of KV pages reach."""

HOST_PAGE_TOKENS = 16
COPY_WINDOW_S = 0.005
"""Copies ordered in one step may take the link so long: the usual step of a GPU."""


@dataclass(frozen=True, slots=True)
class EngineSize:
    """How an engine on the device is set up; 0 takes what the device has.

    Attributes:
        kv_tokens: KV pool.
        slots: Request slots.
        chunk_tokens: Most prompt tokens of one step.
        max_context: Longest request.
        host_kv_tokens: Host checkpoint pool.
        overhead_s: Time between two forward passes.
        batch_size_buckets: Request counts that decode graphs exist for.
    """

    kv_tokens: int = 0
    slots: int = 256
    chunk_tokens: int = 2048
    max_context: int = 0
    host_kv_tokens: int = 0
    overhead_s: float = 0.0
    batch_size_buckets: tuple[int, ...] = CUDA_GRAPH_BATCH_SIZES


@dataclass(frozen=True, slots=True)
class SimulatedDevice:
    """Step times, what policies know of them, and the engine's size.

    Attributes:
        name: As asked for.
        about: In words, for results.
        times: How long steps take.
        model: What policies predict with, fitted as the engine would fit it.
        shape: Size and abilities.
        max_context: Longest request in tokens.
    """

    name: str
    about: str
    times: StepTimes
    model: LatencyModel
    shape: EngineShape
    max_context: int

    def prompt_token_s(self, input_tokens: int) -> float:
        """Time a prompt token takes at the engine's best: in full chunks, half way in."""
        chunk = self.shape.limits.max_chunk_tokens
        load = StepLoad()
        load.add_chunk(chunk, input_tokens // 2)
        return self.times.step_s(load, [(chunk, input_tokens // 2)]) / chunk

    def output_token_s(self, total_tokens: int) -> float:
        """Time an output token takes at the engine's best: as many requests as it holds."""
        pool = self.shape.total_pages * self.shape.page_tokens
        requests = max(1, min(self.shape.total_slots, pool // max(1, total_tokens)))
        load = StepLoad()
        for _ in range(requests):
            load.add_decode(total_tokens)
        return self.times.step_s(load, ()) / requests

    def request_s(self, input_tokens: int, output_tokens: int) -> float:
        """What a request takes of the engine at its best: its tokens, half way in."""
        return input_tokens * self.prompt_token_s(
            input_tokens
        ) + output_tokens * self.output_token_s(input_tokens + output_tokens // 2)


def find_device(name: str, size: EngineSize) -> SimulatedDevice:
    """A shipped GPU table by name, or the file of a table or of a profile.

    Raises:
        ValueError: If there is none, or it cannot be used; one sentence that says what there is.
    """
    path = Path(name)
    if not path.is_file():
        if name not in gpu_table_names():
            raise GpuTableError(
                f"no device {name!r}: neither a file nor one of {', '.join(gpu_table_names())}"
            )
        return table_device(name, load_gpu_table(name), size)
    try:
        plain = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise GpuTableError(f"{path} is neither a profile nor a GPU table: {error}") from error
    if isinstance(plain, dict) and "decode_other_ms" in plain:
        return table_device(name, load_gpu_table(name), size)
    if isinstance(plain, dict) and "key" in plain:
        return profile_device(name, load_profile(path), size)
    raise ProfileError(f"{path} is neither a profile nor a GPU table")


def table_device(
    name: str, table: GpuTable, size: EngineSize, host_s: float = DEFAULT_HOST_S
) -> SimulatedDevice:
    """A GPU: pages of one token, decode steps from captured graphs that no stop reaches."""
    kv_tokens = size.kv_tokens or table.kv_tokens
    max_context = min(size.max_context or table.max_context, kv_tokens)
    gpu = GpuTimes(table, host_s, size.batch_size_buckets)
    samples = [
        Sample(c.decode, c.chunks, gpu.step_s(c.chunks, len(c.decode), sum(c.decode)))
        for c in make_grid(size.chunk_tokens, kv_tokens, size.slots, max_context)
    ]
    page_bytes = HOST_PAGE_TOKENS * table.kv_bytes_per_token / table.tp
    page_copy_s = page_bytes / (LINK_SHARE * table.link_bytes_per_s)
    shape = EngineShape(
        total_pages=kv_tokens,
        page_tokens=1,
        host_total_pages=(size.host_kv_tokens or kv_tokens) // HOST_PAGE_TOKENS,
        host_page_tokens=HOST_PAGE_TOKENS,
        total_slots=size.slots,
        copy_pages_per_step=max(1, int(COPY_WINDOW_S / page_copy_s)),
        page_copy_s=page_copy_s,
        delay_steps=1,
        overhead_s=size.overhead_s,
        most_groups=GROUPS_IN_FLIGHT,
        limits=EngineLimits(
            max_chunk_tokens=size.chunk_tokens,
            prefill_safepoints=True,
            decode_safepoints=not size.batch_size_buckets,
            request_drop=True,
            cuts=True,
            num_layers=table.num_layers,
        ),
    )
    about = f"{table.model} on {table.tp} x {table.gpu}, {table.engine}; {table.source}"
    model = fit_model(samples, size.batch_size_buckets)
    return SimulatedDevice(name, about, TableTimes(gpu), model, shape, max_context)


def profile_device(name: str, profile: Profile, size: EngineSize) -> SimulatedDevice:
    """The machine of a profile: steps take what was fitted, copies end with their step."""
    kv_tokens = size.kv_tokens or 16384
    model = profile.model()
    shape = EngineShape(
        total_pages=kv_tokens,
        page_tokens=1,
        host_total_pages=(size.host_kv_tokens or 4 * kv_tokens) // HOST_PAGE_TOKENS,
        host_page_tokens=HOST_PAGE_TOKENS,
        total_slots=size.slots,
        delay_steps=1,
        overhead_s=size.overhead_s,
        limits=EngineLimits(
            max_chunk_tokens=size.chunk_tokens,
            prefill_safepoints=True,
            decode_safepoints=not profile.decode_row_steps,
            request_drop=True,
            cuts=True,
            num_layers=profile.num_layers,
        ),
    )
    key = profile.key
    about = f"{Path(key.model).name} on {key.device}, SGLang {key.sglang_version}; stored profile"
    max_context = min(size.max_context or 8192, kv_tokens)
    return SimulatedDevice(name, about, ProfiledTimes(model), model, shape, max_context)


def stock_engine(device: SimulatedDevice, setting: str = "") -> SimulatedDevice:
    """The device under SGLang without our plugin, for the policies that are SGLang's own.

    Every slot is open to everyone, nothing goes to the host, prompts stay in the prefix tree, and
    who gives way does so at once. The latency model stays; none of those policies asks it.

    Args:
        device: The device.
        setting: ``CHUNK[+mixed]``, as in ``--chunked-prefill-size`` and ``--enable-mixed-chunk``;
            without a chunk, the device's.
    """
    chunk, _, mixed = setting.partition("+")
    limits = replace(
        device.shape.limits,
        max_chunk_tokens=int(chunk or device.shape.limits.max_chunk_tokens),
        can_mix=bool(mixed),
        retracts_in_flight=True,
    )
    shape = replace(
        device.shape, reserved_share=0.0, host_total_pages=0, keeps_prompts=True, limits=limits
    )
    return replace(device, shape=shape)


def engine_for(device: SimulatedDevice, system: str) -> SimulatedDevice:
    """The device, as SGLang has it by itself for a system named ``sglang_...[@CHUNK[+mixed]]``."""
    policy, _, setting = system.partition("@")
    return stock_engine(device, setting) if policy.startswith("sglang_") else device
