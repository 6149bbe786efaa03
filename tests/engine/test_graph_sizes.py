"""How SGLang pads steps with prompt tokens, as the latency model has it."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

from engine_adapter.scheduling.prefill_graphs import MOST_PADDING

WHERE = "import importlib.util; print(importlib.util.find_spec('sglang').origin)"
RUNNER = "srt/model_executor/runner/prefill_cuda_graph_runner.py"
ATTRIBUTE = "self.capture_num_tokens"


def test_a_graph_is_replayed_up_to_the_padding_that_the_model_takes(engine_python: Path) -> None:
    found = subprocess.run([engine_python, "-c", WHERE], capture_output=True, text=True, check=True)
    source = (Path(found.stdout.strip()).parent / RUNNER).read_text()
    constants = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    assert constants["_MAX_PREFILL_CUDA_GRAPH_PADDING_FACTOR"] == MOST_PADDING
    assert ATTRIBUTE in source
