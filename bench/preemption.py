"""How soon an arriving chat has the device: real scheduler, real monitor, an emulated H200.

    python -m bench.preemption

SGLang's scheduler runs with co-serving in one process of the engine's environment, on the passes of
a GPU's step table (docs/emulated-device.md). Long offline prompts keep the device busy. Another
thread sends a chat through the scheduler's socket five times a second, at no fixed place of a
pass. Of each pass that one of them stops, three times are taken: from the sending of the chat to
the instant at which the device has done all that was launched, from the monitor's word to there,
and from the word to the safepoint at which the host saw it. The target is the 99th percentile of
the first: 5 ms.

Quoted in docs/benchmark-coserve.md.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from pathlib import Path
from typing import Any

from bench.paths import ENGINE_PYTHON, ROOT

TABLE = "h200-llama-3.1-8b"
TARGET_MS = 5.0
NUM_CHATS = 600
EVERY_S = 0.2
TTFT_MS, TBT_MS = 40, 40
CHUNK_TOKENS = 4096
OFFLINE_TOKENS, OFFLINE_OUTSTANDING, NUM_OFFLINE = 3000, 24, 4000
VOCABULARY = 2048
"""An emulated answer is made of tokens from 256 on."""

Stop = tuple[float, float, float]
"""When the monitor's word came, the host saw it, and the device was free."""


def in_the_engine() -> None:
    """Run the scheduler and print the figures; does not return."""
    from tests.engine.engine_scripts import ENGINE_ENV

    strict = {name: "0" for name in ENGINE_ENV if "CHECK" in name}
    os.environ |= {
        **ENGINE_ENV,
        **strict,  # SGLang's own checks of each step are not what is measured
        "COSERVE_EMULATED": TABLE,
        "COSERVE_TTFT_MS": str(TTFT_MS),
        "COSERVE_TBT_MS": str(TBT_MS),
        "COSERVE_HOST_KV_TOKENS": "0",
    }
    from engine_adapter.gpu_tables.gpu_table import load_gpu_table
    from lab.emulated import plugin
    from lab.emulated.model_dir import write_model_dir
    from lab.simulator.device import EngineSize, find_device
    from tests.engine.scheduler_rig import Rig, prompt

    plugin.register()
    folder = Path(tempfile.mkdtemp(prefix="coserve-preemption-"))
    config = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 1}
    (folder / "config.json").write_text(json.dumps(config))
    model = write_model_dir(load_gpu_table(TABLE), folder, folder)
    rig = Rig(
        model=model,
        kv_tokens=200_000,
        slots=64,
        chunk_tokens=CHUNK_TOKENS,
        load_format="dummy",
        context_length=8192,
    )
    s = rig.scheduler
    s.planner.use_model(find_device(TABLE, EngineSize()).model)
    sent_at_s: list[float] = []
    stops: list[Stop] = []
    timeline = s.tp_worker.model_runner.emulated.timeline
    launcher, safepoints = s.execution.launcher, s.execution.safepoints
    note = launcher._note_stop

    def note_stop(step: Any, layer: int) -> None:
        if safepoints.dropped_at_layer is None:  # else the pass went on with the others
            word_at_s, seen_at_s = safepoints.word.raised_at_s, safepoints.gave_way_at_s
            stops.append((word_at_s, seen_at_s, max(seen_at_s, timeline.free_at_s)))
        note(step, layer)

    launcher._note_stop = note_stop
    # Made before: the making would hold the thread that composes passes.
    offline = iter(
        [rig.request(f"offline-{i}", prompt(i, OFFLINE_TOKENS), 4) for i in range(NUM_OFFLINE)]
    )
    chats = [rig.request(f"chat-{i}", prompt(-1 - i, 200), 4, priority=0) for i in range(NUM_CHATS)]

    def feed(rig: Rig) -> None:
        while len(s.waiting_queue) < OFFLINE_OUTSTANDING:
            s.handle_generate_request(next(offline))
        if len(sent_at_s) == NUM_CHATS and time.monotonic() > sent_at_s[-1] + 1.0:
            print("STOPS " + json.dumps(_figures(sent_at_s, stops)), flush=True)
            os._exit(0)  # the offline queue never ends

    def send() -> None:
        dice = random.Random(7)
        time.sleep(2.0)
        for request in chats:
            time.sleep(EVERY_S * (0.5 + dice.random()))
            sent_at_s.append(time.monotonic())
            rig.send(request)

    threading.Thread(target=send, daemon=True).start()
    rig.run(feed, limit=1_000_000)


def _figures(sent_at_s: list[float], stops: list[Stop]) -> dict[str, Any]:
    """Milliseconds from the newest chat sent before a stop's word, and from the word."""
    sent = [sent_at_s[bisect_right(sent_at_s, word_at_s) - 1] for word_at_s, _, _ in stops]
    whole = [free_at_s - at_s for at_s, (_, _, free_at_s) in zip(sent, stops, strict=True)]
    return {
        "chats": len(sent_at_s),
        "stops": len(stops),
        "arrival_to_free_ms": _of(whole),
        "word_to_seen_ms": _of([seen_at_s - word_at_s for word_at_s, seen_at_s, _ in stops]),
        "word_to_free_ms": _of([free_at_s - word_at_s for word_at_s, _, free_at_s in stops]),
    }


def _of(seconds: list[float]) -> dict[str, float]:
    taken = sorted(1e3 * taken_s for taken_s in seconds)
    at = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    found = {
        name: taken[min(len(taken) - 1, int(share * len(taken)))] for name, share in at.items()
    }
    return {name: round(ms, 2) for name, ms in {**found, "worst": taken[-1]}.items()}


def main() -> int:
    """Run the engine's part, keep the figures, and fail when the target is missed."""
    from bench.report import at_most, report

    done = subprocess.run(
        [str(ENGINE_PYTHON), "-m", "bench.preemption", "--engine"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("STOPS ")]
    if not lines:
        raise RuntimeError(f"the engine's part ended with {done.returncode}: {done.stderr[-2000:]}")
    measured: dict[str, Any] = json.loads(lines[-1].removeprefix("STOPS "))
    measured["arrival_to_free_p99_ms"] = measured["arrival_to_free_ms"]["p99"]
    return report("preemption", measured, {"arrival_to_free_p99_ms": at_most(TARGET_MS)})


if __name__ == "__main__":
    if "--engine" in sys.argv[1:]:
        in_the_engine()
    sys.exit(main())
