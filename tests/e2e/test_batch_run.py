"""`coserve batch run` against the whole service with the fake engine."""

from __future__ import annotations

import asyncio
import csv
import os
import subprocess
from pathlib import Path

import pytest

from tests.fixtures.installation import Installation
from tests.fixtures.stack import ROOT


@pytest.mark.timeout(120)
async def test_a_table_comes_back_with_answers(installation: Installation, tmp_path: Path) -> None:
    table = tmp_path / "cities.csv"
    table.write_text("country,word\nFrance,Paris\nItaly,Rome\n")
    env = os.environ | {
        "COSERVE_BASE_URL": f"{installation.url}/v1",
        "COSERVE_API_KEY": installation.admin_key,
    }
    argv = [f"{ROOT}/.venv/bin/coserve", "batch", "run", "fake:text={word}", str(table)]
    done = await asyncio.to_thread(
        lambda: subprocess.run(argv, env=env, capture_output=True, text=True, timeout=100)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 answered" in done.stdout
    with (tmp_path / "cities.answers.csv").open(newline="") as file:
        answered = {row["country"]: row["answer"] for row in csv.DictReader(file)}
    assert answered == {"France": "Paris", "Italy": "Rome"}
