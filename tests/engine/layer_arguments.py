"""Which of SGLang's decoder layers requests can be taken out between. Runs in the engine's venv."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sglang.srt.models.llama import LlamaDecoderLayer
from sglang.srt.models.olmo2 import Olmo2DecoderLayer
from sglang.srt.models.phimoe import PhiMoEDecoderLayer
from sglang.srt.models.qwen2 import Qwen2DecoderLayer
from sglang.srt.models.qwen3 import Qwen3DecoderLayer

from engine_adapter.sglang.forms import Layers
from engine_adapter.sglang.versions.installed import seam


def why_not(layer_class: Any) -> str:
    """Why requests cannot be taken out between such layers; empty if they can."""
    layer = layer_class.__new__(layer_class)  # no weights: only what it takes is looked at
    model = SimpleNamespace(model=SimpleNamespace(layers=[layer]))
    return "".join(one.why for one in Layers.of(model, seam.LAYER_ARGUMENTS).limits)


LAYERS = (
    LlamaDecoderLayer, Qwen2DecoderLayer, Qwen3DecoderLayer, Olmo2DecoderLayer, PhiMoEDecoderLayer,
)  # fmt: skip
found = {layer.__name__: why_not(layer) for layer in LAYERS}
print("RESULTS " + json.dumps({**found, "wanted": seam.LAYER_ARGUMENTS}))
