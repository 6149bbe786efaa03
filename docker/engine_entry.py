"""Start the engine of an image: settings come from the environment, the command from the product.

COSERVE_MODEL          model folder (/model)
COSERVE_MODEL_NAME     name it is served under (the folder's name)
COSERVE_ENGINE_PORT    port to listen on (30000)
COSERVE_ENGINE_ARGS    more arguments for SGLang
COSERVE_ENGINE_GPUS    GPUs of this node (1)
COSERVE_ENGINE_DEVICE  cuda or cpu; the image says which it was built for

What SGLang would say in many lines, and late, is said here in one: no GPU, no model. The status is
then that of an engine that refuses to start (engine_adapter/refusal.py).

In a group of a LeaderWorkerSet the model is spread over the group's nodes: LWS_LEADER_ADDRESS,
LWS_GROUP_SIZE and LWS_WORKER_INDEX are set by it.

With COSERVE_REGISTER_URLS the engine registers itself there (engine_adapter/registration.py).
"""

from __future__ import annotations

import ctypes
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine_adapter.engine_process import Device, EngineSettings, engine_command
from engine_adapter.refusal import EXIT_REFUSED, sentence
from engine_adapter.registration import NAMES as REGISTRATION

RANKS_PORT = 20000
"""Where the ranks of several nodes find each other."""


def nodes_of(environ: Mapping[str, str]) -> tuple[int, tuple[str, ...]]:
    """How many nodes the model is spread over, and SGLang's arguments for it."""
    num = int(environ.get("LWS_GROUP_SIZE", "1"))
    if num == 1:
        return 1, ()
    leader, rank = environ["LWS_LEADER_ADDRESS"], environ["LWS_WORKER_INDEX"]
    arguments = ("--nnodes", str(num), "--node-rank", rank)
    return num, (*arguments, "--dist-init-addr", f"{leader}:{RANKS_PORT}")


def num_gpus(load: Callable[[str], Any] = ctypes.CDLL) -> int:
    """GPUs that the driver shows to this process; 0 without a driver.

    Args:
        load: Opens a shared library by its name, or raises OSError.
    """
    try:
        driver = load("libcuda.so.1")
    except OSError:
        return 0
    num = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(num)):
        return 0
    return num.value


def why_not(environ: Mapping[str, str], count_gpus: Callable[[], int] = num_gpus) -> str:
    """Why an engine cannot be started with these settings; empty if nothing speaks against it."""
    device = environ.get("COSERVE_ENGINE_DEVICE", "cuda")
    if device not in {*Device}:
        return f"COSERVE_ENGINE_DEVICE is {device!r}, and must be cpu or cuda"
    if device == Device.CUDA:
        found, wanted = count_gpus(), int(environ.get("COSERVE_ENGINE_GPUS", "1"))
        if found == 0:
            return (
                "no CUDA device is visible in this container; give it a GPU of the host (Docker: "
                "--gpus all, with NVIDIA's container toolkit; Kubernetes: a limit of "
                "nvidia.com/gpu), or build the image with --build-arg DEVICE=cpu"
            )
        if found < wanted:
            return f"COSERVE_ENGINE_GPUS is {wanted}, and {found} are visible in this container"
    model = Path(environ.get("COSERVE_MODEL", "/model"))
    try:
        empty = model.is_dir() and not any(model.iterdir())
    except PermissionError:
        return f"the user {os.getuid()} may not read the model folder {model}"
    if empty or not model.exists():
        return f"there is no model in {model}; mount a Hugging Face model folder there"
    return ""


def main() -> None:
    """Become the engine's process."""
    why = why_not(os.environ)
    if why:
        sys.stderr.write(sentence(why) + "\n")
        sys.exit(EXIT_REFUSED)
    num_nodes, spread = nodes_of(os.environ)
    is_first = os.environ.get("LWS_WORKER_INDEX", "0") == "0"
    argv, env = engine_command(
        EngineSettings(
            python=Path(sys.executable),
            model_dir=Path(os.environ.get("COSERVE_MODEL", "/model")),
            model_name=os.environ.get("COSERVE_MODEL_NAME", ""),
            host="0.0.0.0",  # the container's network is private
            port=int(os.environ.get("COSERVE_ENGINE_PORT", "30000")),
            device=Device(os.environ.get("COSERVE_ENGINE_DEVICE", "cuda")),
            tensor_parallel=num_nodes * int(os.environ.get("COSERVE_ENGINE_GPUS", "1")),
            extra_args=(*spread, *shlex.split(os.environ.get("COSERVE_ENGINE_ARGS", ""))),
        ),
        os.environ,
    )
    if os.environ.get("COSERVE_REGISTER_URLS") and is_first:
        for name in REGISTRATION:
            env[name] = os.environ.get(name, "")
        argv = [sys.executable, "-m", "engine_adapter.registration", "--", *argv]
    os.execve(argv[0], argv, env)


if __name__ == "__main__":
    main()
