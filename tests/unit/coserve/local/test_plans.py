from __future__ import annotations

from pathlib import Path

import pytest

from coserve.local.plans import why_engine_ended
from engine_adapter.refusal import EXIT_REFUSED, sentence

USAGE = "usage: sglang serve [--this] [--that]\n"


@pytest.mark.parametrize(
    ("code", "log", "why"),
    [
        (
            2,
            f"{USAGE}sglang serve: error: unrecognized arguments: --frob\n",
            "COSERVE_ENGINE_ARGS: unrecognized arguments: --frob.",
        ),
        (EXIT_REFUSED, sentence("there is no room") + "\n", "there is no room"),
        (2, f"{USAGE}something else\n", ""),
        (1, "x: error: y\n", ""),
    ],
)
def test_an_engine_that_says_why_it_cannot_start(
    tmp_path: Path, code: int, log: str, why: str
) -> None:
    file = tmp_path / "engine.log"
    file.write_text(log)
    assert why_engine_ended(code, file) == why
