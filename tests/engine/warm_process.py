"""A process that has imported SGLang and runs each script in a fork of it; in the engine's venv.

The imports take a processor ten seconds, most scripts less. An order is a line of JSON on standard
input, ``{"argv", "env", "stdout", "stderr", "limit_s"}``; the answer is one on standard output,
``{"code", "cpu_s"}``, once the script has ended. The imports count with the first script. Only
SGLang and what it needs are imported here: what is ours, and what ours replaces in SGLang, begins
anew in each fork.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import signal
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

MOST_THREADS = 1
"""A thread does not live on in a fork, and what it held stays locked there."""


def run(order: dict[str, Any]) -> NoReturn:
    """In the fork: be the script until its end."""
    code = 1
    try:
        os.setsid()
        for number, path in ((1, order["stdout"]), (2, order["stderr"])):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.environ.update(order["env"])
        tempfile.tempdir = None  # the folder of the environment as it is now
        sys.argv = order["argv"]
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter would say it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # a script ends with its scheduler still running


def ended(pid: int, limit_s: float) -> dict[str, float]:
    """Wait for a fork, and end it and what it left when it takes too long."""
    waiting = select.poll()
    watched = os.pidfd_open(pid)
    waiting.register(watched, select.POLLIN)
    if not waiting.poll(limit_s * 1000):
        os.kill(pid, signal.SIGKILL)
    os.close(watched)
    _, status, used = os.wait4(pid, 0)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return {"code": os.waitstatus_to_exitcode(status), "cpu_s": used.ru_utime + used.ru_stime}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what imports print is no answer
    import sglang.srt.managers.scheduler
    import sglang.srt.models.registry  # noqa: F401 - every model there is
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: F401

    threads = [path.name for path in Path("/proc/self/task").iterdir()]
    assert len(threads) <= MOST_THREADS, f"{len(threads)} threads: a fork would have one of them"
    told_s = 0.0
    for line in sys.stdin:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            run(json.loads(line))
        answer = ended(pid, json.loads(line)["limit_s"])
        answer["cpu_s"] += time.process_time() - told_s
        told_s = time.process_time()
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
