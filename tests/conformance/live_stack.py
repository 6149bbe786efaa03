"""The stack all of this talks to: `coserve up`, with fake engines over HTTP or the real one."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from coserve.local.ports import free_port
from tests.fixtures.stack import DEFAULT_MODEL
from tests.fixtures.supervised import ROOT, Up, end_with_parent

FAKE_MODEL, FAKE_EMBEDDER, FAKE_GPU = "fake-model", "fake-embedder", "fake-gpu"
FAKE_START_S, REAL_START_S = 120.0, 400.0


@dataclass(frozen=True)
class Live:
    """A running stack.

    Attributes:
        url: Its root, without `/v1`.
        key: An ordinary key of the default project: generated requests must not end the stack's.
        model: Generates text.
        embedder: Makes embeddings; empty where no such engine is there.
        gpu: Generates text as an engine on a GPU does: with a long context, and a sampler that
            takes no seeds. The same as `model` where no such engine is there.
        real: A model answers, and not what it is told to.
    """

    url: str
    key: str
    model: str
    embedder: str
    gpu: str
    real: bool

    def environment(self) -> dict[str, str]:
        """What the suites, in processes of their own, read."""
        return {
            "CONFORMANCE_URL": self.url,
            "CONFORMANCE_KEY": self.key,
            "CONFORMANCE_MODEL": self.model,
            "CONFORMANCE_EMBEDDER": self.embedder,
            "CONFORMANCE_GPU": self.gpu,
            "CONFORMANCE_REAL": "1" if self.real else "",
        }


@contextmanager
def _fake_engine(*options: str) -> Iterator[str]:
    argv = [sys.executable, "-m", "tests.fakes.server", "--port", "0", *options]
    process = subprocess.Popen(
        argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, preexec_fn=end_with_parent
    )
    try:
        assert process.stdout is not None
        port = process.stdout.readline().split()[-1]
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


class _BoundUp(Up):
    bound = True


def _end(up: Up) -> None:
    """Ask first; what its parts do not hear ends with it."""
    try:
        up.end(signal.SIGTERM)
    except subprocess.TimeoutExpired:
        up.process.kill()
        up.process.wait(10)


@contextmanager
def live_stack(*, real: bool) -> Iterator[Live]:
    """One stack while the block runs.

    Args:
        real: With SGLang and the default model; else with three fake engines, which say what they
            are told to. One makes embeddings, and one is as on a GPU.
    """
    with ExitStack() as stack:
        # Short: unix sockets lie in it.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cs-")))
        if real:
            settings = {"COSERVE_MODEL": str(DEFAULT_MODEL)}
            model, embedder, gpu = DEFAULT_MODEL.name, "", DEFAULT_MODEL.name
        else:
            model, embedder, gpu = FAKE_MODEL, FAKE_EMBEDDER, FAKE_GPU
            engines = (
                ("--model", FAKE_MODEL),
                ("--model", FAKE_EMBEDDER, "--embeds"),
                (
                    "--model",
                    FAKE_GPU,
                    "--context-tokens",
                    "65536",
                    "--sampling-backend",
                    "flashinfer",
                ),
            )
            urls = [stack.enter_context(_fake_engine(*options)) for options in engines]
            settings = {"ENGINE_URLS": ",".join(urls)}
        settings["COSERVE_WEBHOOK_NETWORKS"] = "127.0.0.0/8"
        up = _BoundUp(folder / "home", free_port(), **settings)
        stack.callback(_end, up)
        up.wait_until_ready(REAL_START_S if real else FAKE_START_S)
        made = up.run("key", "create", "conformance")
        key = re.search(r"sk-coserve-\S+", made.stdout)
        assert key is not None, made.stderr
        yield Live(up.url, key[0], model, embedder, gpu, real)
