"""The list of a release that is followed: what its wheel pins, and else what was listed."""

from __future__ import annotations

import zipfile
from pathlib import Path

from release.follow.engine_list import followed, new_requirements, wheel_requirements

LISTED = """\
# What it needs.
openai==2.6.1
numpy==2.4.6
pyzmq
tokenizers==0.22.2

sglang==0.5.16  # no-deps
xgrammar==0.2.1  # no-deps
"""


def wheel(folder: Path, version: str, *needs: str) -> Path:
    path = folder / f"sglang-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        lines = ["Metadata-Version: 2.1", "Name: sglang", *(f"Requires-Dist: {x}" for x in needs)]
        archive.writestr(f"sglang-{version}.dist-info/METADATA", "\n".join(lines) + "\n\ntext\n")
    return path


def test_pins_follow_the_wheel_where_it_changed_them(tmp_path: Path) -> None:
    old = wheel_requirements(
        wheel(tmp_path, "1.0", "openai==2.6.1", "numpy", "pyzmq>=25", "xgrammar==0.2.1")
    )
    new = wheel_requirements(
        wheel(
            tmp_path, "1.1", "OpenAI==2.8.0", "numpy", "pyzmq>=25", "tokenizers[x]==0.23",
            "xgrammar==0.2.7", "xx_hash", 'torch==9; extra == "cuda"',
        )
    )  # fmt: skip
    assert new["tokenizers"] == "[x]==0.23"
    assert "torch" not in new
    text, told = followed(LISTED, old, new, "1.1")
    assert text.splitlines() == [
        "# What it needs.", "openai==2.8.0", "numpy==2.4.6", "pyzmq", "tokenizers==0.23", "",
        "sglang==1.1  # no-deps", "xgrammar==0.2.7  # no-deps",
    ]  # fmt: skip
    assert told == [
        "openai==2.6.1 -> ==2.8.0", "tokenizers==0.22.2 -> ==0.23",
        "sglang==0.5.16 -> ==1.1", "xgrammar==0.2.1 -> ==0.2.7",
    ]  # fmt: skip
    assert new_requirements(old, new) == ["tokenizers[x]==0.23", "xx-hash"]
