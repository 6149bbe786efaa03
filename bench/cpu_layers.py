"""What packed weights save on a CPU: the products of one step, as torch does them and packed.

    .venv-engine/bin/python bench/cpu_layers.py > bench/results/cpu_layers.json

The shapes are those of SmolLM2-135M: thirty layers and the output layer, on one thread. Both ways
run in turns and the shortest of `TURNS` counts, so that a neighbour on the machine hurts neither.
One layer is timed and counted thirty times. Prints JSON: for each type and number of tokens,
milliseconds of thread CPU time. Runs in the engine's environment; needs no engine.

Quoted in docs/engine.md.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from engine_adapter.cpu_compat import linear
from engine_adapter.host_cpu import cpu_name

LAYER = ((960, 576), (576, 576), (3072, 576), (576, 1536))
HEAD = (49_152, 576)
NUM_LAYERS, TURNS = 30, 15
TOKENS = (1, 2, 3, 8, 16, 64, 256)


def took_ms(work: Callable[[], object]) -> float:
    """Thread CPU time of one call."""
    began_s = time.thread_time()
    work()
    return (time.thread_time() - began_s) * 1000


def of_step(weights: list[torch.Tensor], num_tokens: int) -> dict[str, float]:
    """Milliseconds of the products with these weights: `torch` and `packed`."""
    inputs = [torch.randn(num_tokens, weight.shape[1]).to(weight.dtype) for weight in weights]
    packed = [linear.pack(weight) for weight in weights]
    both = {
        "torch": lambda: [
            torch.nn.functional.linear(x, w) for x, w in zip(inputs, weights, strict=True)
        ],
        "packed": lambda: [linear.product(x, w) for x, w in zip(inputs, packed, strict=True)],
    }
    seen: dict[str, list[float]] = {name: [] for name in both}
    for _ in range(TURNS):
        for name, work in both.items():
            seen[name].append(took_ms(work))
    return {name: min(times) for name, times in seen.items()}


def main() -> None:
    """Print the table as JSON."""
    torch.set_num_threads(1)
    steps = []
    for dtype in (torch.float32, torch.bfloat16):
        layer = [torch.randn(shape).to(dtype) for shape in LAYER]
        head = [torch.randn(HEAD).to(dtype)]
        if not linear.can_pack(head[0]):
            continue
        for num_tokens in TOKENS:
            # The output layer computes the last token of a prompt, and every decoded one.
            layers, heads = of_step(layer, num_tokens), of_step(head, min(num_tokens, 64))
            whole = {way: round(NUM_LAYERS * layers[way] + heads[way], 1) for way in layers}
            steps.append({"type": str(dtype), "tokens": num_tokens, **whole})
            print(dtype, num_tokens, whole, file=sys.stderr)
    host = {"cpu": cpu_name(), "torch": torch.__version__, "threads": 1}
    print(json.dumps({"unit": "ms of CPU a step", "host": host, "steps": steps}, indent=2))


if __name__ == "__main__":
    main()
