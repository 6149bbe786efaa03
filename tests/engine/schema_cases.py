"""Makes answers by the engine's grammar for each schema, and has a validator judge them.

It prints, for each schema, what the table says is not held, and the keywords that an answer broke.
"""

from __future__ import annotations

import json
import random
import sys
from contextlib import suppress
from typing import Any

import xgrammar
from jsonschema import Draft202012Validator

from api.schemas.held import held

TRIES = 12
MOST_BYTES = 400
END = 256
_VALIDATOR = Draft202012Validator
_FORMATS = Draft202012Validator.FORMAT_CHECKER


def answers(schema: dict[str, Any], chance: random.Random) -> list[str]:
    """Whole answers that the grammar lets through; those that do not end in time are left out."""
    vocabulary: list[str | bytes] = [bytes([byte]) for byte in range(256)]
    info = xgrammar.TokenizerInfo([*vocabulary, b"</s>"], stop_token_ids=[END])
    compiler = xgrammar.GrammarCompiler(info)
    grammar = compiler.compile_json_schema(json.dumps(schema), any_whitespace=False)
    mask = xgrammar.allocate_token_bitmask(1, END + 1)
    made = []
    for _ in range(TRIES):
        matcher, text = xgrammar.GrammarMatcher(grammar), bytearray()
        while len(text) < MOST_BYTES:
            matcher.fill_next_token_bitmask(mask)
            words = [int(word) & 0xFFFFFFFF for word in mask[0]]
            free = [i for i in range(END + 1) if words[i // 32] >> (i % 32) & 1]
            if not free:
                break  # nothing that ends satisfies it: a 400, too
            ends = [i for i in free if i in (END, *b'"]}')]
            odd = [i for i in free if i in (*b'\\"\n-.e0', 0xE2, 0xC2)]
            token = chance.choice(
                ends if ends and chance.random() < 0.3 else odd if odd and chance.random() < 0.3
                else free
            )  # fmt: skip
            if token == END:
                with suppress(UnicodeDecodeError):  # single bytes may go astray; tokens do not
                    made.append(text.decode())
                break
            assert matcher.accept_token(token)
            text.append(token)
    return made


def main() -> None:
    chance = random.Random(7)
    for line in sys.stdin:
        schema = json.loads(line)
        made, missing = held(schema)
        broken: list[str] = []
        try:
            texts = answers(made, chance)
        except RuntimeError as refused:  # a 400 that names the field
            print(json.dumps({"missing": missing, "refused": str(refused)}))
            continue
        for text in texts:
            try:
                value = json.loads(text)
            except ValueError:
                broken.append(f"no JSON: {text!r}")
                continue
            errors = _VALIDATOR(schema, format_checker=_FORMATS).iter_errors(value)
            broken += [f"{error.json_path} {error.validator}: {text}"[:200] for error in errors]
        print(json.dumps({"missing": missing, "broken": broken, "num_answers": len(texts)}))


if __name__ == "__main__":
    main()
