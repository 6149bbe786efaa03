"""Takes the arithmetic out of SGLang's model runner and puts a table's time in.

Everything around the pass stays SGLang's: scheduler, prefix tree, page tables, HTTP. The decoder
layers stay modules that are called one by one with the arguments they always get, so safepoints,
dropped rows and aborts are the real ones. Each launches its share of the pass. The host waits for
the device at safepoints, as it does for CUDA, and for the result. Keys and values are never
written. A row's token is 256 plus its length modulo 1,024, so that a lost or a doubled one shows.
Logits have one column, which holds the token.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.layers.logits_processor import LogitsProcessorOutput
from sglang.srt.model_executor.model_runner import ModelRunner

from engine_adapter.gpu_tables.gpu_table import CUDA_GRAPH_BATCH_SIZES, GpuTimes, load_gpu_table
from engine_adapter.sglang.cuda_pass import RunAhead
from lab.emulated.charged_pool import ChargedPool
from lab.emulated.clock import Clock, HostClock, device_clock
from lab.emulated.timeline import Timeline
from lab.simulator.device import LINK_SHARE

FIRST_TOKEN, NUM_TOKENS = 256, 1024
HOST_STEP_S = 0.0
"""What virtual time charges for the host before steps that may stop, beside the tables' 2 ms.

Nothing: what a GPU's host takes there is not known, and the scheduler's thread on a busy virtual
machine (`PassCounts.host_cpu_s`) does not tell. On the host's clock it is charged as it is.
"""
REPORT_EVERY_S = 0.5


def install(table: str) -> None:
    """Emulate the device of that table in every model runner of this process."""
    load_model = ModelRunner.load_model

    def load_and_empty(runner: Any) -> None:
        load_model(runner)
        runner.emulated = EmulatedPass(
            runner,
            GpuTimes(load_gpu_table(table), batch_size_buckets=CUDA_GRAPH_BATCH_SIZES),
            device_clock(),
        )

    ModelRunner.load_model = load_and_empty
    TorchNativeAttnBackend.init_forward_metadata = lambda _backend, _forward_batch: None


class EmulatedPass:
    """The passes of one model runner.

    Attributes:
        timeline: When the device is busy.
        row_buckets: Row counts of the captured decode graphs it pretends to have.
    """

    def __init__(self, runner: Any, times: GpuTimes, clock: Clock) -> None:
        """Empty the runner's layers, its logits and its sampling."""
        table = times.table
        self.timeline = Timeline(
            clock.now_s,
            clock.wait,
            LINK_SHARE * table.link_bytes_per_s,
            0.0 if isinstance(clock, HostClock) else HOST_STEP_S,
            quiet_until=clock.quiet_until_s,
        )
        self._token_bytes = table.kv_bytes_per_token // table.tp
        self._clock = clock
        self.batch_size_buckets = times.batch_size_buckets
        self._times = times
        self._rows = 0
        self._report = os.environ.get("COSERVE_EMULATED_REPORT", "")
        self._reported_at_s = 0.0
        layers = runner.model.model.layers
        self._num_layers = len(layers)
        for number, layer in enumerate(layers):
            layer.forward = self._layer(number)
        runner.model.logits_processor.forward = self._logits
        runner.sample = _sample

    def pass_clock(self) -> EmulatedClock:
        """The clock that the plugin reads durations of passes from."""
        return EmulatedClock(self)

    def run_ahead(self) -> RunAhead:
        """What keeps the host close to the device, as for CUDA."""
        return EmulatedRunAhead(self.timeline)

    def charging(self, pool: Any, page_tokens: int) -> ChargedPool:
        """The host pool, with copies that take the time of the table's KV on its link."""
        return ChargedPool(pool, self.timeline, page_tokens * self._token_bytes)

    def _layer(self, number: int) -> Any:
        def forward(
            positions: torch.Tensor,
            hidden_states: torch.Tensor,
            forward_batch: Any,
            *residual: torch.Tensor | None,
            **_: Any,
        ) -> Any:
            if number == 0:
                self._rows = forward_batch.batch_size
                self._clock.launched()
                self.timeline.begin(self.step_s(forward_batch))
            elif forward_batch.batch_size != self._rows:  # rows were dropped before this layer
                self._rows = forward_batch.batch_size
                self.timeline.change(number / self._num_layers, self.step_s(forward_batch))
            self.timeline.launch((number + 1) / self._num_layers)
            if not residual:  # it is kept with the batch
                return hidden_states
            return hidden_states, hidden_states if residual[0] is None else residual[0]

        return forward

    def step_s(self, forward_batch: Any) -> float:
        """What the table says of a batch."""
        if forward_batch.batch_size == 0:
            return 0.0
        lengths = forward_batch.extend_seq_lens_cpu
        if forward_batch.forward_mode.is_decode() or lengths is None:
            rows = forward_batch.batch_size
            return self._times.step_s((), rows, int(forward_batch.seq_lens_cpu.sum()) - rows)
        prefixes = forward_batch.extend_prefix_lens_cpu
        pairs = [(int(p), int(c)) for p, c in zip(lengths, prefixes, strict=True)]
        decode = [context for tokens, context in pairs if tokens == 1 and context]
        chunks = [(tokens, context) for tokens, context in pairs if tokens > 1 or not context]
        return self._times.step_s(chunks, len(decode), sum(decode))

    def _logits(
        self, _ids: Any, _hidden: Any, _head: Any, forward_batch: Any, *_: Any
    ) -> LogitsProcessorOutput:
        tokens = FIRST_TOKEN + forward_batch.seq_lens % NUM_TOKENS
        self.timeline.finish()
        self._tell()
        return LogitsProcessorOutput(next_token_logits=tokens.to(torch.float32).unsqueeze(1))

    def _tell(self) -> None:
        now_s = self._clock.now_s()
        if not self._report or now_s - self._reported_at_s < REPORT_EVERY_S:
            return
        self._reported_at_s = now_s
        part = Path(f"{self._report}.part")
        part.write_text(json.dumps(asdict(self.timeline.counts)))
        part.replace(self._report)


class EmulatedRunAhead(RunAhead):
    """Keeps the host close to a device whose marks know when they are passed."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__(timeline.mark, sleep=timeline.approach)
        self._timeline = timeline

    def freed_at_s(self) -> Callable[[], float]:
        free_at_s = max(self._clock(), self._timeline.free_at_s)
        return lambda: free_at_s


class EmulatedClock:
    """Durations of passes on the emulated device."""

    def __init__(self, emulated: EmulatedPass) -> None:
        self._timeline = emulated.timeline

    def start(self) -> None:
        """Before a launch; nothing has to be remembered."""

    def stop(self, _started: None) -> Any:
        """After a launch; see :meth:`~.cuda_pass.DeviceClock.stop`."""
        seconds = self._timeline.last_s
        return lambda: seconds

    def gap(self) -> Callable[[], float]:
        """Of the newest pass; see :meth:`~.cuda_pass.DeviceClock.gap`."""
        seconds = self._timeline.gap_s
        return lambda: seconds


def _sample(logits_output: Any, _forward_batch: Any) -> torch.Tensor:
    return logits_output.next_token_logits[:, 0].to(torch.int64)
