from __future__ import annotations

import json
from pathlib import Path

import pytest

from coserve.setup.model import check_architecture, find_model
from coserve.setup.progress import SetupFailed


def model(folder: Path, architecture: str = "LlamaForCausalLM") -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    (folder / "model.safetensors").touch()
    return folder


@pytest.fixture
def engine_python(tmp_path: Path) -> Path:
    """An engine's environment whose SGLang knows two architectures."""
    models = tmp_path / "engine/lib/python3.11/site-packages/sglang/srt/models"
    models.mkdir(parents=True)
    (models / "llama.py").write_text("EntryClass = [\n    LlamaForCausalLM,\n]\n")
    (models / "qwen2.py").write_text("EntryClass = Qwen2ForCausalLM\n")
    return tmp_path / "engine/bin/python"


def test_a_model_by_path_and_by_name(tmp_path: Path) -> None:
    home = tmp_path / "home"
    by_path, by_name = model(tmp_path / "here"), model(home / "models" / "kept")
    assert find_model(str(by_path), home) == by_path
    assert find_model("kept", home) == by_name


def test_what_is_no_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(SetupFailed, match="is a folder"):
        find_model("nothing-there", tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SetupFailed, match=r"config\.json"):
        find_model(str(tmp_path / "empty"), tmp_path)
    bare = model(tmp_path / "bare")
    (bare / "model.safetensors").unlink()
    with pytest.raises(SetupFailed, match="no weights"):
        find_model(str(bare), tmp_path)


def test_an_architecture_the_engine_has_no_code_for(tmp_path: Path, engine_python: Path) -> None:
    for name in ("LlamaForCausalLM", "Qwen2ForCausalLM"):
        check_architecture(model(tmp_path / name, name), engine_python)
    with pytest.raises(SetupFailed, match=r"OddForCausalLM.*not one of the 2"):
        check_architecture(model(tmp_path / "odd", "OddForCausalLM"), engine_python)
    unnamed = model(tmp_path / "unnamed")
    (unnamed / "config.json").write_text("{}")
    with pytest.raises(SetupFailed, match="none in its"):
        check_architecture(unnamed, engine_python)
