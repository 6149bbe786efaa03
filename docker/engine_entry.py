"""Start the engine of an image: settings come from the environment, the command from the product.

COSERVE_MODEL        model folder (/model)
COSERVE_MODEL_NAME   name it is served under (the folder's name)
COSERVE_ENGINE_PORT  port to listen on (30000)
COSERVE_ENGINE_ARGS  more arguments for SGLang

With COSERVE_REGISTER_URLS the engine registers itself there (engine_adapter/registration.py).
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from engine_adapter.engine_process import Device, EngineSettings, engine_command
from engine_adapter.registration import NAMES as REGISTRATION


def main() -> None:
    """Become the engine's process."""
    argv, env = engine_command(
        EngineSettings(
            python=Path(sys.executable),
            model_dir=Path(os.environ.get("COSERVE_MODEL", "/model")),
            model_name=os.environ.get("COSERVE_MODEL_NAME", ""),
            host="0.0.0.0",  # the container's network is private
            port=int(os.environ.get("COSERVE_ENGINE_PORT", "30000")),
            device=Device.CUDA,
            tensor_parallel=int(os.environ.get("COSERVE_ENGINE_GPUS", "1")),
            extra_args=tuple(shlex.split(os.environ.get("COSERVE_ENGINE_ARGS", ""))),
        ),
        os.environ,
    )
    if os.environ.get("COSERVE_REGISTER_URLS"):
        for name in REGISTRATION:
            env[name] = os.environ.get(name, "")
        argv = [sys.executable, "-m", "engine_adapter.registration", "--", *argv]
    os.execve(argv[0], argv, env)


if __name__ == "__main__":
    main()
