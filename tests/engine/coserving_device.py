"""One real scheduler on a watched device: every kind of step, and what its streams and host do.

``python coserving_device.py``; prints one JSON object: faults in the order of streams, and the
times that the host waited in lines of ours, by kind of step.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.engine import watched_device

# SGLang fences its scheduling stream behind a pass on CUDA; elsewhere it has to be asked to.
os.environ["SGLANG_ENABLE_WAR_BARRIER"] = "1"
# A page costs the watched host so much that within tighter targets none would be copied.
os.environ |= {"COSERVE_TTFT_MS": "200000", "COSERVE_TBT_MS": "100000"}
watched_device.install()

from sglang.srt import runtime_context  # noqa: E402
from sglang.srt.managers import utils as sglang_utils  # noqa: E402

from tests.engine import scheduler_rig  # noqa: E402
from tests.engine.scenario_steps import counters, gained  # noqa: E402
from tests.engine.scheduler_rig import Rig, prompt  # noqa: E402
from tests.engine.scripted_policy import ScriptedPolicy, Wishes  # noqa: E402

rig_module: Any = scheduler_rig
_Args = rig_module.ServerArgs
_publish = scheduler_rig.publish


def _on_the_watched_device(**fields: Any) -> Any:
    args = _Args(**fields)
    args.device = watched_device.DEVICE
    return args


def _publish_the_watched_device(args: Any, rank: int) -> tuple[Any, ...]:
    """Newer releases write the device anew where they publish it, as a plain string."""
    places = _publish(args, rank)
    if hasattr(runtime_context, "SpawnRanks"):
        runtime_context.get_context().override(source="watched", device=watched_device.DEVICE)
    return places


def _to_host(tensor: torch.Tensor) -> torch.Tensor:
    """What a pass leaves on the device goes to the host, beside the next pass.

    SGLang does so on CUDA alone: since 0.5.22 it returns what is on a CPU as it is.
    """
    return tensor.to("cpu", non_blocking=True)


PENALTIES = {"frequency_penalty": 0.9, "presence_penalty": 0.6, "repetition_penalty": 1.3}


def passes(rig: Rig) -> None:
    """Prompts in chunks, beside requests that decode, and decode steps."""
    rig.use(ScriptedPolicy(lambda _: Wishes(chunk={"b": 64})))
    rig.submit("a", prompt(1, 40), 24, priority=0)
    rig.submit("b", prompt(2, 200), 12)
    rig.run()


def penalties(rig: Rig) -> None:
    """The same with penalties, and requests that rest."""
    rig.use(ScriptedPolicy(lambda _: Wishes(park={"ab"[rig.step % 2]} if rig.step > 9 else set())))
    rig.submit("a", prompt(3, 40), 24, **PENALTIES)
    rig.submit("b", prompt(4, 60), 24)
    rig.run()


def aborts(rig: Rig) -> None:
    """Steps of offline requests alone are stopped."""
    rig.use(ScriptedPolicy(lambda _: Wishes(chunk={"a": 64})))
    rig.submit("a", prompt(5, 200), 12)
    rig.submit("b", prompt(6, 60), 12)
    rig.run(_stop_every_third)


def drops(rig: Rig) -> None:
    """Offline requests are cut out of steps with an online one."""
    rig.use(ScriptedPolicy(lambda _: Wishes(chunk={"b": 32})))
    rig.submit("a", prompt(7, 40), 30, priority=0)
    rig.submit("b", prompt(8, 300), 12)
    rig.run(_stop_every_third)


def copies(rig: Rig) -> None:
    """Requests are copied to the host, retracted and restored."""

    def wish(_: Any) -> Wishes:
        rest = {"a", "b"} if rig.step in (9, 10, 11, 24, 25, 26) else set()
        return Wishes(
            checkpoint=True, park=rest, retract=rest if rig.step in (11, 26) else set(), hold=rest
        )

    rig.use(ScriptedPolicy(wish))
    rig.submit("a", prompt(9, 133), 30)
    rig.submit("b", prompt(10, 90), 30)
    rig.run()


def _stop_every_third(rig: Rig) -> None:
    if rig.step % 3 == 0:
        rig.stop_at[rig.scheduler.execution.snapshots._step_id + 1] = 2


def stage_copies(rig: Rig) -> None:
    """Move pages as on CUDA: gathered on the stream of the passes, copied on another one.

    Triton is not here; its kernels do what these do (`kernel_cases.py`).
    """
    import coserve_kernels.staged_mover

    staged_mover: Any = coserve_kernels.staged_mover
    pool, s = rig.scheduler.execution.checkpointer.pool, rig.scheduler
    planes = [plane for side in pool._sides for plane in side]

    def lanes(plane: Any, shape: Any) -> Any:
        return plane.view(plane.shape[0], -1).view(shape.lane_type)

    def tokens(staging: Any, num_pages: int, shape: Any) -> Any:
        by_plane = staging[:num_pages].view(
            num_pages, shape.num_planes, shape.page_tokens, shape.row_lanes
        )
        return by_plane.transpose(1, 2)

    def gather(_: Any, slots: Any, staging: Any, shape: Any) -> None:
        num_pages = -(-slots.shape[0] // shape.page_tokens)
        for i, plane in enumerate(planes):
            rows = lanes(plane, shape)[slots]
            room = num_pages * shape.page_tokens - rows.shape[0]
            rows = torch.nn.functional.pad(rows, (0, 0, 0, room))
            tokens(staging, num_pages, shape)[:, :, i].copy_(
                rows.view(num_pages, shape.page_tokens, -1)
            )

    def scatter(_: Any, slots: Any, staging: Any, shape: Any, skip: int) -> None:
        num_pages = -(-(slots.shape[0] + skip) // shape.page_tokens)
        for i, plane in enumerate(planes):
            rows = tokens(staging, num_pages, shape)[:, :, i].flatten(0, 1)
            lanes(plane, shape)[slots] = rows[skip : skip + slots.shape[0]]

    staged_mover.gather_pages, staged_mover.scatter_pages = gather, scatter
    streams = staged_mover.CudaStreams(s.forward_stream, (s.forward_stream, s.copy_stream))
    pool._mover = staged_mover.StagedMover(*pool._sides, pool._pages, streams, 1)


def main() -> None:
    rig_module.ServerArgs = _on_the_watched_device
    rig_module.publish = _publish_the_watched_device
    engine_utils: Any = sglang_utils
    engine_utils._async_d2h = _to_host
    watch = watched_device.WatchedDevice()
    with watch:
        rig = Rig(overlap=True, page_size=16)
        stage_copies(rig)
        before = counters(rig)
        for kind in (passes, penalties, aborts, drops, copies):
            rig.scheduler.flush_cache()
            watch.settle()
            watch.kind = kind.__name__
            kind(rig)
    events = ("aborts", "drops", "retracts", "restored_requests", "checkpointed_pages")
    found = {
        "unordered": watch.unordered,
        "ordered": watch.num_ordered,
        "waits": [[kind, at, times] for (kind, at), times in sorted(watch.blocking.items())],
        "events": gained(before, counters(rig), *events),
    }
    print("RESULTS " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
