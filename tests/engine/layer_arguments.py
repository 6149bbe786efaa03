"""Which of SGLang's decoder layers rows can be dropped between. Runs in the engine's venv."""

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

from engine_adapter.runtime_settings import SettingError
from engine_adapter.sglang.safepoints import Safepoints


def refused(layer_class: Any) -> str:
    """Why a model of such layers is refused; empty if it is not."""
    layer: Any = layer_class.__new__(layer_class)  # no weights: only what it takes is looked at
    layer.register_forward_pre_hook = lambda hook: None
    runner = SimpleNamespace(
        model=SimpleNamespace(model=SimpleNamespace(layers=[layer])),
        device="cpu",
        forward=lambda batch: None,
    )
    agreement: Any = SimpleNamespace(rank=0)
    try:
        Safepoints(runner, agreement)
    except SettingError as error:
        return str(error)
    return ""


LAYERS = (
    LlamaDecoderLayer, Qwen2DecoderLayer, Qwen3DecoderLayer, Olmo2DecoderLayer, PhiMoEDecoderLayer,
)  # fmt: skip
print("RESULTS " + json.dumps({layer.__name__: refused(layer) for layer in LAYERS}))
