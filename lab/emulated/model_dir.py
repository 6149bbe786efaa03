"""A model folder for an emulated device: the layers of the real model, each next to nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from engine_adapter.gpu_tables.gpu_table import GpuTable

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
WIDTH = 16


def write_model_dir(table: GpuTable, tokenizer_dir: Path, folder: Path) -> Path:
    """Write a Llama of the table's depth and context, sixteen wide, without weights.

    Args:
        table: Whose model is emulated.
        tokenizer_dir: A model folder; its tokenizer and vocabulary are taken.
        folder: Where to make the folder, named after the table.

    Returns:
        The folder. Start the engine with ``--load-format dummy``.
    """
    made = folder / table.name
    made.mkdir(parents=True, exist_ok=True)
    source: dict[str, Any] = json.loads((tokenizer_dir / "config.json").read_text())
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "vocab_size": source["vocab_size"],
        "bos_token_id": source.get("bos_token_id"),
        "eos_token_id": source.get("eos_token_id"),
        "hidden_size": WIDTH,
        "intermediate_size": WIDTH,
        "head_dim": WIDTH,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "num_hidden_layers": table.num_layers,
        "max_position_embeddings": table.max_context,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
    }
    (made / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    for name in TOKENIZER_FILES:
        if (tokenizer_dir / name).is_file():
            shutil.copyfile(tokenizer_dir / name, made / name)
    return made
