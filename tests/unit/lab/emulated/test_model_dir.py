"""The folder an emulated engine is started with."""

from __future__ import annotations

import json
from pathlib import Path

from engine_adapter.gpu_tables.gpu_table import load_gpu_table
from lab.emulated.model_dir import write_model_dir


def test_it_has_the_depth_of_the_model_and_the_tokenizer_of_the_given_one(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "config.json").write_text(json.dumps({"vocab_size": 700, "eos_token_id": 2}))
    (given / "tokenizer.json").write_text("{}")
    made = write_model_dir(load_gpu_table("h200-llama-3.1-70b-tp4"), given, tmp_path / "models")
    assert made == tmp_path / "models/h200-llama-3.1-70b-tp4"
    config = json.loads((made / "config.json").read_text())
    assert (config["num_hidden_layers"], config["max_position_embeddings"]) == (80, 131072)
    assert (config["vocab_size"], config["eos_token_id"]) == (700, 2)
    assert (made / "tokenizer.json").read_text() == "{}"
    assert not list(made.glob("*.safetensors"))
