"""The engine's command line and environment are a function of settings alone."""

from __future__ import annotations

from pathlib import Path

from engine_adapter.engine_process import Device, EngineSettings, engine_command
from engine_adapter.host_cpu import matmul_dtype

PYTHON = Path("/opt/engine/bin/python")
MODEL = Path("/srv/models/Some-Model")


def flag(argv: list[str], name: str) -> str:
    return argv[argv.index(name) + 1]


def test_a_cpu_engine_is_bounded_and_single_threaded() -> None:
    argv, env = engine_command(EngineSettings(PYTHON, MODEL, 30001), {})
    assert argv[:3] == [str(PYTHON), "-m", "sglang.launch_server"]
    assert flag(argv, "--model-path") == str(MODEL)
    assert flag(argv, "--served-model-name") == "Some-Model"
    assert flag(argv, "--host") == "127.0.0.1"
    assert flag(argv, "--port") == "30001"
    assert flag(argv, "--device") == "cpu"
    assert flag(argv, "--dtype") == matmul_dtype()
    assert flag(argv, "--attention-backend") == "torch_native"
    assert int(flag(argv, "--max-total-tokens")) > 0
    assert int(flag(argv, "--max-running-requests")) > 0
    assert "--sleep-on-idle" in argv
    assert env["OMP_NUM_THREADS"] == "1"
    assert 0 < int(env["MALLOC_MMAP_THRESHOLD_"]) <= 32 << 20, "glibc ignores more"
    assert int(env["MALLOC_TRIM_THRESHOLD_"]) > 32 << 20
    assert env["SGLANG_USE_CPU_ENGINE"] == "1"
    assert env["SGLANG_PLUGINS"] == "coserve,coserve_cpu,coserve_emulated"
    assert env["PYTHONSAFEPATH"] == "1"
    assert env["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"] == "0"
    for dump in ("SGLANG_PYSPY_DUMP_BEFORE_CRASH", "SGLANG_CUDA_COREDUMP_BEFORE_CRASH"):
        assert env[dump] == "0"


def test_a_cuda_engine_leaves_the_sizes_to_sglang() -> None:
    settings = EngineSettings(PYTHON, MODEL, 30001, device=Device.CUDA, tensor_parallel=2)
    argv, env = engine_command(settings, {})
    assert flag(argv, "--device") == "cuda"
    assert flag(argv, "--dtype") == "auto"
    assert flag(argv, "--tp-size") == "2"
    for absent in (
        "--max-total-tokens",
        "--chunked-prefill-size",
        "--attention-backend",
        "--disable-overlap-schedule",
    ):
        assert absent not in argv
    assert env["SGLANG_PLUGINS"] == "coserve"
    assert "SGLANG_USE_CPU_ENGINE" not in env


def test_given_sizes_and_extra_arguments_win() -> None:
    settings = EngineSettings(
        PYTHON,
        MODEL,
        1,
        model_name="m",
        kv_tokens=1000,
        max_running=3,
        chunk_tokens=128,
        context_tokens=900,
        page_tokens=16,
        extra_args=("--random-seed", "5"),
    )
    argv, _ = engine_command(settings, {})
    assert flag(argv, "--served-model-name") == "m"
    assert flag(argv, "--max-total-tokens") == "1000"
    assert flag(argv, "--max-running-requests") == "3"
    assert flag(argv, "--chunked-prefill-size") == "128"
    assert flag(argv, "--context-length") == "900"
    assert flag(argv, "--page-size") == "16"
    assert argv[-2:] == ["--random-seed", "5"]


def test_secrets_of_the_service_do_not_reach_the_engine() -> None:
    given = {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "0",
        "COSERVE_POLICY": "conserve_v2",
        "COSERVE_SECRET": "s",
        "DATABASE_URL": "postgresql://",
        "PYTHONPATH": "/somewhere",
        "NCCL_DEBUG": "INFO",
        "SGLANG_PLUGINS": "none",
    }
    _, env = engine_command(EngineSettings(PYTHON, MODEL, 1), given)
    assert env["PATH"] == "/bin"
    assert env["CUDA_VISIBLE_DEVICES"] == "0"
    assert env["COSERVE_POLICY"] == "conserve_v2"
    assert env["NCCL_DEBUG"] == "INFO"
    assert env["SGLANG_PLUGINS"] == "coserve,coserve_cpu,coserve_emulated"
    assert not {"COSERVE_SECRET", "DATABASE_URL", "PYTHONPATH"} & set(env)


def test_two_cpu_ranks_get_a_core_each() -> None:
    settings = EngineSettings(PYTHON, MODEL, 1, tensor_parallel=2)
    _, env = engine_command(settings, {})
    assert env["SGLANG_CPU_OMP_THREADS_BIND"] == "0|1"


def test_a_wider_type_gets_fewer_tokens_in_the_same_memory() -> None:
    def tokens(dtype: str) -> int:
        argv, _ = engine_command(EngineSettings(PYTHON, MODEL, 1, dtype=dtype), {})
        return int(flag(argv, "--max-total-tokens"))

    assert tokens("float32") * 2 == tokens("bfloat16")
