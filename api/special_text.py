"""Marks of the end of a turn, which engines leave in a text when they keep special tokens.

SGLang keeps them for every request with tools, since some models write calls in special tokens.
Where an answer ends by its mark it cuts the mark off, but not where the limit of tokens falls on
the same token.
"""

from __future__ import annotations

import re
from typing import Final

_END_OF_TURN: Final = re.compile(
    r"(?:<\|(?:im_end|endoftext|end_of_text|eot_id|eom_id|end|return|eot|user)\|>"
    r"|<(?:end_of_turn|eos|turn\|)>|</s>|<｜end▁of▁sentence｜>|\[e~\[)\Z"
)


def without_end_of_turn(text: str) -> str:
    """The text without a mark at its end."""
    return _END_OF_TURN.sub("", text) if text and text[-1] in ">[" else text
