"""The units of ops/systemd: what systemd says of them, and that what they start exists."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from coserve.commands.serve import ServedPart

ROOT = Path(__file__).parents[3]
UNITS = sorted((ROOT / "ops" / "systemd").glob("*.*"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_understands_them(tmp_path: Path) -> None:
    """Laid out as the page says, with the programs they name put where they are."""
    program = tmp_path / "coserve"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for unit in UNITS:
        text = unit.read_text().replace("/srv/coserve/.venv/bin/coserve", str(program))
        (tmp_path / unit.name.replace("@", "@gateway")).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", *(path for path in tmp_path.iterdir() if path.suffix)],
        capture_output=True,
        text=True,
    )
    ours = [line for line in done.stderr.splitlines() if "coserve" in line]
    assert ours == [], done.stderr


def test_they_name_every_part_that_is_served() -> None:
    page = (ROOT / "docs/deploy/host.md").read_text()
    parts = set(re.findall(r"@(worker-\w+|gateway|beat)", page))
    checks = {ServedPart.MIGRATE, ServedPart.WORKER_CHECK, ServedPart.BEAT_CHECK}
    assert parts == {part.value for part in ServedPart if part not in checks}
