from __future__ import annotations

import pytest
import typer

from coserve.commands.serve import ServedPart, _part


def test_a_part_that_is_none_is_refused_in_plain_words() -> None:
    assert _part("beat") is ServedPart.BEAT
    with pytest.raises(typer.BadParameter) as refused:
        _part("nope")
    assert refused.value.message.startswith("there is no part 'nope'; the parts are gateway, ")
