"""A real SGLang scheduler with co-serving, driven in this process. Runs in the engine's venv.

The scheduler is the one the server starts: real model runner, real pools, real event loop, with
SGLang's strict checks on. What the rig replaces is only the far end of its sockets. Plans come
from a script (or a policy), stops from a script, so that every event happens at a known place.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
for entry in (str(ROOT), str(ROOT / "kernels")):
    if entry not in sys.path:
        sys.path.insert(0, entry)

from tests.engine.engine_scripts import ENGINE_ENV  # noqa: E402

DEVICE = os.environ.get("COSERVE_RIG_DEVICE", "cpu")
"""Where the scheduler computes: ``cpu``, or ``cuda`` (`bench.gpu`)."""

for name, value in ENGINE_ENV.items():
    if DEVICE == "cpu" or name != "SGLANG_USE_CPU_ENGINE":
        os.environ.setdefault(name, value)

import torch  # noqa: E402
import zmq  # noqa: E402
from sglang.srt.managers.io_struct import TokenizedGenerateReqInput  # noqa: E402
from sglang.srt.sampling.sampling_params import SamplingParams  # noqa: E402
from sglang.srt.server_args import PortArgs, ServerArgs  # noqa: E402

from bench.gpu.geometry import GPU_RIG  # noqa: E402
from engine_adapter.coserving_levels import Ability  # noqa: E402
from engine_adapter.cpu_compat import plugin as cpu_compat  # noqa: E402
from engine_adapter.sglang.coserving import CoServingScheduler  # noqa: E402
from engine_adapter.sglang.forms import Layers  # noqa: E402
from engine_adapter.sglang.versions.installed import seam  # noqa: E402
from tests.engine.near_ties import NearTies  # noqa: E402

if DEVICE == "cpu":
    cpu_compat.register()

NUM_LAYERS = 6
VOCAB = 512
CPU_SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
CUDA_ARGS = {"attention_backend": "triton", "mem_fraction_static": 0.3}
"""The backend that travels; production's default on a Hopper card does not fit."""

MORE_ARGS: dict[str, Any] = json.loads(os.environ.get("COSERVE_RIG_ARGS", "{}"))
"""Further arguments of SGLang's server."""


def tiny_llama(folder: Path) -> Path:
    """A random Llama with 6 layers whose greedy choices are far from ties."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(7)
    shape = CPU_SHAPE if DEVICE == "cpu" else GPU_RIG
    config = LlamaConfig(
        **shape,
        num_hidden_layers=NUM_LAYERS,
        vocab_size=VOCAB,
        max_position_embeddings=2048,
        initializer_range=0.25,
        eos_token_id=1,
        bos_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def publish(args: ServerArgs, rank: int) -> tuple[Any, ...]:
    """Tell this process its configuration; what a scheduler is to be told of its rank."""
    from sglang.srt import runtime_context, server_args

    if not hasattr(runtime_context, "SpawnRanks"):
        server_args.set_global_server_args_for_scheduler(args)
        return rank, rank, 0, 0, 0, 0, None
    world = runtime_context.spawn_world_rank(args, tp_rank=rank, pp_rank=0)
    ranks = runtime_context.SpawnRanks(world_rank=world, dp_rank=None, gpu_id=rank)
    runtime_context.publish(args, role="scheduler", ranks=ranks)
    return ()


class Rig:
    """One scheduler and the requests sent to it."""

    def __init__(  # noqa: PLR0913
        self,
        *,
        overlap: bool = True,
        dtype: str = "float32",
        kv_tokens: int = 4096,
        slots: int = 16,
        page_size: int = 1,
        chunk_tokens: int = 512,
        scheduler_class: type[Any] = CoServingScheduler,
        rank: int = 0,
        ports: Any = None,
        model: Path | None = None,
        **server_args: Any,
    ) -> None:
        if model is None:
            model = tiny_llama(Path(tempfile.mkdtemp(prefix="coserve-rig-")) / "model")
        if DEVICE != "cpu":  # its kernels of norms and positions are made for halves
            dtype, server_args = "bfloat16", {**CUDA_ARGS, **MORE_ARGS, **server_args}
        args = ServerArgs(
            model_path=str(model),
            device=DEVICE,
            dtype=dtype,
            skip_tokenizer_init=True,
            disable_overlap_schedule=not overlap,
            max_total_tokens=kv_tokens,
            max_running_requests=slots,
            chunked_prefill_size=chunk_tokens,
            page_size=page_size,
            watchdog_timeout=600,
            **server_args,
        )
        ports = ports or PortArgs.init_new(args)
        context = zmq.Context.instance()
        self.to_scheduler = context.socket(zmq.PUSH)
        if rank == 0:
            self.to_scheduler.bind(ports.scheduler_input_ipc_name)
        self.outputs = context.socket(zmq.PULL)
        self.outputs.setsockopt(zmq.RCVHWM, 0)
        if rank == 0:
            self.outputs.bind(ports.tokenizer_ipc_name)
        places = publish(args, rank)
        self.script: Callable[[Rig], None] = lambda rig: None
        self.step = 0
        self.limit = 5000
        self.reqs: dict[str, Any] = {}
        rig = self

        class Rigged(scheduler_class):  # type: ignore[misc]
            def get_next_batch_to_run(self, running_batch: Any, last_batch: Any) -> Any:
                rig._tick()
                return super().get_next_batch_to_run(running_batch, last_batch)

            def _add_request_to_queue(self, req: Any, is_retracted: bool = False) -> None:
                rig.reqs[req.rid] = req
                super()._add_request_to_queue(req, is_retracted)

            def maybe_sleep_on_idle(self) -> None:
                rig.idle_sleeps += 1

        self.idle_sleeps = 0
        self.scheduler = Rigged(args, ports, *places)
        if self.scheduler.coserving.can(Ability.STEPS):
            self.scheduler.profiler.stop()  # steps are counted: no cells between them
        self.stop_at: dict[int, int] = {}
        runner = self.scheduler.tp_worker.model_runner
        self.near_ties = NearTies(runner) if DEVICE != "cpu" else None
        if self.scheduler.coserving.can(Ability.STEPS):
            layers = Layers.of(runner.model, ()).layers
            for i, layer in enumerate(layers[:-1]):
                layer.register_forward_pre_hook(self._raise_word_in(i))

    def _raise_word_in(self, i: int) -> Callable[..., None]:
        """Raise the stop word while layer i is about to compute: the stop is seen at i + 1."""

        def hook(_module: Any, _args: Any) -> None:
            step = self.scheduler.execution.unsettled
            if step is not None and self.stop_at.get(step.plan.step_id) == i + 1:
                self.scheduler.execution.safepoints.word.raise_for(step.plan.step_id)

        return hook

    def use(self, policy: Any) -> Any:
        """Plan with this policy from now on."""
        self.scheduler.planner.use(policy)
        return policy

    def request(
        self,
        rid: str,
        prompt: Iterable[int],
        max_new_tokens: int,
        *,
        priority: int = -10,
        **sampling: Any,
    ) -> TokenizedGenerateReqInput:
        """A tokenized request; negative priority is offline."""
        params = SamplingParams(
            max_new_tokens=max_new_tokens, temperature=0.0, ignore_eos=True, **sampling
        )
        params.normalize(None)
        params.verify(VOCAB)
        return TokenizedGenerateReqInput(
            rid=rid,
            input_text="",
            input_ids=array("q", prompt),
            input_embeds=None,
            mm_inputs=None,
            token_type_ids=None,
            sampling_params=params,
            return_logprob=False,
            logprob_start_len=-1,
            top_logprobs_num=0,
            token_ids_logprob=None,
            stream=True,
            priority=priority,
        )

    def submit(self, rid: str, prompt: Iterable[int], max_new_tokens: int, **kwargs: Any) -> None:
        """Hand a request to the scheduler at once."""
        self.scheduler.handle_generate_request(self.request(rid, prompt, max_new_tokens, **kwargs))

    def send(self, request: TokenizedGenerateReqInput) -> None:
        """Send a request through the socket the monitor owns."""
        self.to_scheduler.send_pyobj(request)

    def run(
        self,
        script: Callable[[Rig], None] | None = None,
        limit: int = 5000,
        at_least: int = 0,
    ) -> None:
        """Run SGLang's own event loop until nothing is left to do."""
        self.script = script or (lambda rig: None)
        self.step = 0
        self.at_least = at_least
        self.limit = limit
        s = self.scheduler
        s.gracefully_exit = False
        s.last_batch = None
        self._idle_seen = 0
        s.run_event_loop()
        self.drain()

    def output(self, rid: str) -> list[int]:
        """Greedy output of a finished request."""
        req = self.reqs[rid]
        assert req.finished(), f"{rid} did not finish: {len(req.output_ids)} tokens"
        return [int(token) for token in req.output_ids]

    def same(self, rid: str, got: list[int], want: list[int]) -> bool:
        """Whether a request's answers are the same, or part where two tokens were nearly alike."""
        if self.near_ties is None:
            return got == want
        return self.near_ties.explain(rid, len(self.reqs[rid].origin_input_ids), got, want)

    def drain(self) -> list[Any]:
        """Messages the scheduler sent out since the last call."""
        messages = []
        while self.outputs.poll(20):
            messages.append(self.outputs.recv_pyobj())
        return messages

    def _tick(self) -> None:
        self.step += 1
        s = self.scheduler
        if self.step > self.limit:
            raise RuntimeError(f"no end after {self.limit} steps: {s.coserve_state()}")
        self.script(self)
        if seam.num_ranks(s) > 1:
            return  # ended by a message, so that all ranks end in the same iteration
        idle = not s.waiting_queue and s.is_fully_idle()
        self._idle_seen = self._idle_seen + 1 if idle else 0
        if self._idle_seen > 1 and self.step > self.at_least:
            s.gracefully_exit = True


def prompt(seed: int, length: int) -> list[int]:
    """A prompt without repetition at its start."""
    generator = torch.Generator().manual_seed(seed)
    return [int(i) for i in torch.randint(2, VOCAB, (length,), generator=generator)]
