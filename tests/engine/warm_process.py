"""A process that has imported SGLang, and forks scripts and engines; in the engine's venv.

The imports take a processor ten seconds, most scripts less; an engine has them three times. An
order is a line of JSON on standard input, the answer one on standard output:

- ``{"argv", "env", "stdout", "stderr", "limit_s"}`` is a script: ``{"code", "cpu_s"}`` is told once
  it has ended. The imports count with the first script.
- ``{"engine", "env", "cwd", "log"}`` is ``python -m`` with these arguments: ``{"pid"}`` is told at
  once.
- ``{"reap"}`` waits for an engine's process, which has ended: ``{"code"}``.

Only SGLang and what it needs are imported here: what is ours, and what ours replaces in SGLang,
begins anew in each fork.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import random
import runpy
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

MOST_THREADS = 1
"""A thread does not live on in a fork, and what it held stays locked there."""
SERVER = "sglang.srt.entrypoints.http_server"
"""What an engine imports beside what a script does."""


def script(order: dict[str, Any]) -> None:
    """In the fork: run a script."""
    for number, path in ((1, order["stdout"]), (2, order["stderr"])):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ.update(order["env"])
    tempfile.tempdir = None  # the folder of the environment as it is now
    sys.argv = order["argv"]
    runpy.run_path(sys.argv[0], run_name="__main__")


def engine(order: dict[str, Any]) -> None:
    """In the fork: serve until the end. The engine's own processes are forks of it too."""
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
        os.dup2(file, number)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    tempfile.tempdir = None
    random.seed()  # ports are drawn
    multiprocessing.set_start_method("fork", force=True)
    # SGLang asks for processes that import everything again.
    multiprocessing.set_start_method = lambda *_args, **_more: None
    sys.argv = order["engine"]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def run(be: Callable[[dict[str, Any]], None], order: dict[str, Any]) -> NoReturn:
    """In the fork, until its end."""
    code = 1
    try:
        os.setsid()
        be(order)
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

    told_s = 0.0
    for line in sys.stdin:
        order, answer = json.loads(line), dict[str, float]()
        if "reap" in order:
            answer["code"] = os.waitstatus_to_exitcode(os.waitpid(order["reap"], 0)[1])
        else:
            if "engine" in order:
                importlib.import_module(SERVER)
            pid = forked(order)
            answer = {"pid": pid} if "engine" in order else ended(pid, order["limit_s"])
            answer["cpu_s"] = answer.get("cpu_s", 0.0) + time.process_time() - told_s
            told_s = time.process_time()
        answers.write(json.dumps(answer) + "\n")


def forked(order: dict[str, Any]) -> int:
    """The process of an order."""
    threads = [path.name for path in Path("/proc/self/task").iterdir()]
    assert len(threads) <= MOST_THREADS, f"{len(threads)} threads: a fork would have one of them"
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        run(engine if "engine" in order else script, order)
    return pid


if __name__ == "__main__":
    main()
