"""The command line and the environment an engine is started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from engine_adapter.host_cpu import matmul_dtype
from engine_adapter.host_gpu import compute_capability, cuda_environment, page_tokens_of
from engine_adapter.model_family import parsers_of
from engine_adapter.runtime_settings import PASSED_ON

PLUGINS = "coserve"
CPU_PLUGINS = "coserve,coserve_cpu,coserve_emulated"  # the last: in a checkout, when asked

# Of the caller's environment only what these name or begin with reaches the engine: no database
# address, no key and no interpreter setting of the service.
_PASSED_ON = PASSED_ON | {
    "PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "LD_LIBRARY_PATH", "XDG_CACHE_HOME",
    "CC", "CXX",
}  # fmt: skip
_PASSED_ON_PREFIXES = (
    "LC_", "GLOO_", "NCCL_", "SGLANG_", "HF_", "TORCH", "PYTORCH_", "TRITON_", "CUDA_", "NVIDIA_",
    "FLASHINFER_", "TVM_FFI_", "DG_",
)  # fmt: skip


# An engine whose scheduler has ended sleeps five seconds for them before it ends too, or 65.
_CRASH_DUMPS = ("SGLANG_PYSPY_DUMP_BEFORE_CRASH", "SGLANG_CUDA_COREDUMP_BEFORE_CRASH")


class Device(StrEnum):
    """What the engine computes on."""

    CPU = "cpu"
    CUDA = "cuda"


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How one engine is started. `None` leaves a value to SGLang.

    Attributes:
        python: Interpreter of the engine's environment.
        model_dir: A Hugging Face model folder.
        model_name: Name under which it is served; the folder's own name if empty.
        host: Address to listen on; an engine has no authentication, so keep it private.
        port: Port to listen on.
        device: What to compute on.
        dtype: Weights and KV. By default SGLang's choice on a GPU; on a CPU what the processor
            multiplies fastest: bfloat16 takes a third of float32's time there, or six times it.
        kv_tokens: Tokens the KV pool holds. On a CPU the pool is ordinary memory, so it is bounded.
        max_running: Requests that may hold a slot at once, parked ones included.
        chunk_tokens: Prompt tokens computed in one step at most.
        context_tokens: Longest prompt and answer together; the model's own limit by default.
        page_tokens: Tokens per KV page.
        tensor_parallel: Devices one model is spread over.
        num_threads: OpenMP threads of a CPU engine; two collapse when the cores are shared.
        log_level: SGLang's.
        extra_args: Appended as they are.
    """

    python: Path
    model_dir: Path
    port: int
    host: str = "127.0.0.1"
    model_name: str = ""
    device: Device = Device.CPU
    dtype: str | None = None
    kv_tokens: int | None = None
    max_running: int | None = None
    chunk_tokens: int | None = None
    context_tokens: int | None = None
    page_tokens: int | None = None
    tensor_parallel: int = 1
    num_threads: int = 1
    log_level: str = "info"
    extra_args: tuple[str, ...] = field(default=())

    @property
    def served_name(self) -> str:
        """What `/v1/models` says."""
        return self.model_name or self.model_dir.name


# A CPU host shares its memory with the rest of the stack: as many bytes, whatever the type.
_CPU_KV_TOKENS = 65_536
_CPU_KV_TOKENS_WIDE = 32_768
_CPU_MAX_RUNNING = 64
_CPU_CHUNK_TOKENS = 512
# SGLang captures decode steps of up to so many requests; larger ones run slower and unplanned.
_CUDA_MAX_RUNNING, _CUDA_MAX_RUNNING_WIDE, _WIDE = 256, 512, 4
# A layer's temporaries are megabytes. glibc would give each back to the kernel at once, and every
# page of it had to be faulted in again: gathering 2,000 tokens of KV took four times as long.
# 32 MiB is the most that glibc takes for the first.
_CPU_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}


def engine_command(
    settings: EngineSettings, environ: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """The argument list and the whole environment of an engine.

    Args:
        settings: How to start it.
        environ: The caller's environment; little of it is passed on.

    Returns:
        `(argv, env)`. Start it in its own session, in any folder: the interpreter does not look
        for modules there.
    """
    on_cpu = settings.device is Device.CPU
    dtype = settings.dtype or (matmul_dtype() if on_cpu else "auto")
    cpu_kv_tokens = _CPU_KV_TOKENS_WIDE if dtype == "float32" else _CPU_KV_TOKENS
    kv_tokens = settings.kv_tokens or (cpu_kv_tokens if on_cpu else None)
    max_running = settings.max_running or _default_max_running(settings)
    chunk_tokens = settings.chunk_tokens or (_CPU_CHUNK_TOKENS if on_cpu else None)
    page_tokens = settings.page_tokens or (None if on_cpu else page_tokens_of(compute_capability()))
    argv = [
        str(settings.python), "-m", "sglang.launch_server",
        "--model-path", str(settings.model_dir),
        "--served-model-name", settings.served_name,
        "--host", settings.host,
        "--port", str(settings.port),
        "--device", settings.device.value,
        "--dtype", dtype,
        "--tp-size", str(settings.tensor_parallel),
        "--grammar-backend", "xgrammar",
        # A small model may otherwise fill a JSON answer with white space up to its token limit.
        "--constrained-json-disable-any-whitespace",
        "--log-level", settings.log_level,
        "--log-level-http", "warning",
        # Cached prompt tokens are part of the usage that clients see.
        "--enable-cache-report",
        # Without it the idle scheduler spins on one core.
        "--sleep-on-idle",
    ]  # fmt: skip
    for flag, value in (
        ("--max-total-tokens", kv_tokens),
        ("--max-running-requests", max_running),
        ("--chunked-prefill-size", chunk_tokens),
        ("--context-length", settings.context_tokens),
        ("--page-size", page_tokens),
    ):
        if value is not None:
            argv += [flag, str(value)]
    if on_cpu:
        # Launching ahead buys nothing where the host computes.
        argv += ["--attention-backend", "torch_native", "--disable-overlap-schedule"]
        # In bfloat16 the logits of a small model tie, and a cached prefix then turns the answer.
        argv += ["--enable-fp32-lm-head"]
    # Of the model's family; an argument of the operator's comes later and wins.
    argv += parsers_of(settings.model_dir)
    argv += settings.extra_args
    return argv, _environment(settings, environ)


def _default_max_running(settings: EngineSettings) -> int:
    """As many requests as SGLang makes decode graphs for, and as our profile measures."""
    if settings.device is Device.CPU:
        return _CPU_MAX_RUNNING
    return _CUDA_MAX_RUNNING_WIDE if settings.tensor_parallel >= _WIDE else _CUDA_MAX_RUNNING


def _environment(settings: EngineSettings, environ: Mapping[str, str]) -> dict[str, str]:
    env = {
        name: value
        for name, value in environ.items()
        if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }
    env |= {
        "PYTHONSAFEPATH": "1",  # a folder named `kernels` in the working directory is not a package
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "SGLANG_PLUGINS": PLUGINS,
        # SGLang's health check otherwise runs a request, as if a client were waiting, and takes a
        # second each time. `/server_info` passes through the scheduler and proves as much.
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",
        **{name: environ.get(name, "0") for name in _CRASH_DUMPS},
    }
    if settings.device is Device.CUDA:
        env |= cuda_environment(settings.python, env)
    else:
        env |= {
            "SGLANG_PLUGINS": CPU_PLUGINS,
            "SGLANG_USE_CPU_ENGINE": "1",
            "TORCHDYNAMO_DISABLE": "1",
            "OMP_NUM_THREADS": str(settings.num_threads),
            **_CPU_MALLOC,
        }
        if settings.tensor_parallel > 1:
            env["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(map(str, range(settings.tensor_parallel)))
    return env
