"""A profile is measured once: the next start loads it by itself, and only for its own engine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine_adapter.liveness import verify_engine
from engine_adapter.refusal import EXIT_REFUSED, PREFIX
from tests.engine.engine_scripts import run_forked, run_script
from tests.engine.forked_engine import forked_engine
from tests.fixtures.engine import START_LIMIT_S, RunningEngine, tiny_settings

pytestmark = pytest.mark.thorough

MEASURED_IN_S = 120.0
"""What a profile of the default model may take on a CPU; this model is far smaller."""


async def measured(engine: RunningEngine) -> dict[str, Any]:
    """What the engine says of its profile, once there is one."""
    async with asyncio.timeout(START_LIMIT_S + MEASURED_IN_S):
        while True:
            facts = await verify_engine(engine.url, engine.model, START_LIMIT_S)
            found: dict[str, Any] = facts.raw["coserve"]["profile"]
            if found["state"] != "measuring":
                return found
            await asyncio.sleep(0.5)


def stored_by(engine: RunningEngine) -> Path:
    [path] = (engine.log.parent / ".coserve" / "profiles").glob("*.json")
    return path


@pytest.mark.timeout(600)
async def test_a_profile_is_measured_once_and_its_targets_are_printed(
    engine: RunningEngine, engine_python: Path, tiny_model: Path, tmp_path: Path
) -> None:
    first = await measured(engine)
    assert first["state"] in ("ready", "stored")
    assert first["busy_s"] < MEASURED_IN_S
    settings = tiny_settings(engine_python, tiny_model)
    folder = str(stored_by(engine).parent)
    with forked_engine(settings, tmp_path, COSERVE_PROFILE_DIR=folder) as second:
        facts = await verify_engine(second.url, second.model, START_LIMIT_S)
        found = facts.raw["coserve"]
        assert (found["profile"]["state"], found["profile"]["cells"]) == ("stored", 0)
        assert found["policy"] == "conserve_v2"
        slo = found["slo"]
        line = (
            f"coserve: policy conserve_v2, TTFT target {slo['ttft_s'] * 1000:.0f} ms, "
            f"TBT target {slo['tbt_s'] * 1000:.0f} ms, profile stored"
        )
        assert line in second.log.read_text(errors="replace")


def test_a_profile_of_another_device_is_refused(tmp_path: Path) -> None:
    """By the scheduler; how its sentence becomes the server's last is in `test_refusals.py`."""
    device = run_script("foreign_profile.py", tmp_path)["device"]
    done = run_forked(Path(__file__).with_name("foreign_profile.py"), tmp_path)
    assert done.returncode == EXIT_REFUSED, done.stderr[-3000:]
    last = done.stderr.splitlines()[-1]
    assert last.startswith(PREFIX + "profile ")
    assert f"was measured for device 'NVIDIA H100' instead of {device!r}; run " in last
