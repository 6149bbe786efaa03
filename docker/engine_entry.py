"""Start the engine of an image: settings come from the environment, the command from the product.

COSERVE_MODEL        model folder (/model)
COSERVE_MODEL_NAME   name it is served under (the folder's name)
COSERVE_ENGINE_PORT  port to listen on (30000)
COSERVE_ENGINE_ARGS  more arguments for SGLang
COSERVE_ENGINE_GPUS  GPUs of this node (1)

In a group of a LeaderWorkerSet the model is spread over the group's nodes: LWS_LEADER_ADDRESS,
LWS_GROUP_SIZE and LWS_WORKER_INDEX are set by it.

With COSERVE_REGISTER_URLS the engine registers itself there (engine_adapter/registration.py).
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from engine_adapter.engine_process import Device, EngineSettings, engine_command
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


def main() -> None:
    """Become the engine's process."""
    num_nodes, spread = nodes_of(os.environ)
    is_first = os.environ.get("LWS_WORKER_INDEX", "0") == "0"
    argv, env = engine_command(
        EngineSettings(
            python=Path(sys.executable),
            model_dir=Path(os.environ.get("COSERVE_MODEL", "/model")),
            model_name=os.environ.get("COSERVE_MODEL_NAME", ""),
            host="0.0.0.0",  # the container's network is private
            port=int(os.environ.get("COSERVE_ENGINE_PORT", "30000")),
            device=Device.CUDA,
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
