"""Settings, the last word of an engine that refuses them, and the memory it may take."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from engine_adapter.refusal import EXIT_REFUSED, PREFIX
from engine_adapter.scheduling.targets import Slo
from engine_adapter.sglang.settings import (
    DEFAULT_POLICY,
    OFF,
    RuntimeSettings,
    SettingError,
    free_bytes,
    read_settings,
)


def test_nothing_set_is_co_serving_with_the_default_policy() -> None:
    settings = read_settings({})
    assert settings.policy == DEFAULT_POLICY == "conserve_v2"
    assert settings.is_on
    assert settings.ttft_s is None
    assert settings.host_kv_tokens is None
    assert settings.reserved_slot_share == 0.25
    assert settings.profile_dir.as_posix() == ".coserve/profiles"


def test_off_leaves_scheduling_to_sglang() -> None:
    assert not read_settings({"COSERVE_POLICY": OFF}).is_on


def test_values_are_read_in_their_units() -> None:
    settings = read_settings(
        {
            "COSERVE_POLICY": "sarathi_p",
            "COSERVE_TTFT_MS": "450",
            "COSERVE_TBT_MS": "62.5",
            "COSERVE_TPOT_MS": "40",
            "COSERVE_TTFT_PERCENTILE": "90",
            "COSERVE_TBT_PERCENTILE": "99",
            "COSERVE_TPOT_PERCENTILE": "95",
            "COSERVE_SAFEPOINT_MS": "40",
            "COSERVE_HOST_KV_TOKENS": "0",
            "COSERVE_HOME": "/state",
            "COSERVE_SAFEPOINTS": "0",
            "COSERVE_FIRST_TOKEN_SHARE": "0.4",
        }
    )
    assert settings.ttft_s == pytest.approx(0.45)
    assert settings.tbt_s == pytest.approx(0.0625)
    assert settings.slo(Slo(9.0, 9.0)) == Slo(0.45, 0.0625, 0.04, 0.9, 0.99, 0.95)
    assert RuntimeSettings().slo(Slo(9.0, 8.0)) == Slo(9.0, 8.0)
    assert settings.safepoint_interval_s == pytest.approx(0.04)
    assert settings.host_kv_tokens == 0
    assert settings.profile_dir.as_posix() == "/state/profiles"
    assert settings.first_token_share == pytest.approx(0.4)
    assert not settings.safepoints
    assert settings.checkpoints


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("COSERVE_TTFT_MS", "0", "positive number of milliseconds"),
        ("COSERVE_TBT_MS", "-5", "positive number of milliseconds"),
        ("COSERVE_TTFT_MS", "soon", "give a number"),
        ("COSERVE_TPOT_MS", "0", "positive number of milliseconds"),
        ("COSERVE_TTFT_PERCENTILE", "100", "less than 100"),
        ("COSERVE_TBT_PERCENTILE", "40", "at least 50"),
        ("COSERVE_TPOT_PERCENTILE", "all", "give a number"),
        ("COSERVE_TTFT_MS", "nan", "give a number"),
        ("COSERVE_RESERVED_SLOT_SHARE", "1", "at least 0 and below 1"),
        ("COSERVE_FIRST_TOKEN_SHARE", "1.5", "between 0 and 1"),
        ("COSERVE_ISOLATION_SHARE", "0", "above 0, and at most 0.2"),
        ("COSERVE_HOST_KV_TOKENS", "many", "whole number of tokens"),
        ("COSERVE_SAFEPOINTS", "yes", "give 0 or 1"),
    ],
)
def test_a_bad_value_is_refused_by_name(name: str, value: str, hint: str) -> None:
    with pytest.raises(SettingError, match=hint) as refused:
        read_settings({name: value})
    assert name in str(refused.value)
    assert "\n" not in str(refused.value)


# --- A scheduler's refusal is the last line of its server, whatever the server dies of.

ROOT = Path(__file__).resolve().parents[4]
CHILD = "from engine_adapter.sglang.settings import refuse; refuse('X is 0;\\n give 1')"
SERVER = """
import subprocess, sys
from engine_adapter.sglang.settings import repeat_at_the_end
repeat_at_the_end()
repeat_at_the_end()  # plugins are loaded more than once
code = sys.argv[1]
died = subprocess.run([sys.executable, '-c', code]).returncode
raise RuntimeError(f'scheduler died: {died}')
"""


def run(tmp_path: Path, code: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    return subprocess.run(
        [sys.executable, "-c", SERVER, code], capture_output=True, text=True, env=env, check=False
    )


def test_the_server_repeats_what_a_child_said_and_leaves_no_file(tmp_path: Path) -> None:
    done = run(tmp_path, CHILD)
    assert done.returncode == EXIT_REFUSED
    assert done.stderr.splitlines() == [PREFIX + "X is 0; give 1"] * 2
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_dies_of_something_else_says_what(tmp_path: Path) -> None:
    done = run(tmp_path, "raise SystemExit(3)")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "RuntimeError: scheduler died: 3"
    assert list(tmp_path.iterdir()) == []


def test_of_two_ranks_that_refuse_the_first_is_repeated(tmp_path: Path) -> None:
    ranks = (
        "import subprocess, sys\n"
        "for reason in ('first', 'second'):\n"
        "    word = 'from engine_adapter.sglang.settings import refuse; '\n"
        "    subprocess.run([sys.executable, '-c', word + f'refuse({reason!r})'])\n"
    )
    done = run(tmp_path, ranks)
    assert done.stderr.splitlines() == [PREFIX + word for word in ("first", "second", "first")]


def test_a_server_that_refuses_by_itself_leaves_no_file(tmp_path: Path) -> None:
    own = "from engine_adapter.sglang.settings import refuse, repeat_at_the_end\n"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    code = own + "repeat_at_the_end()\nrefuse('no')"
    done = subprocess.run([sys.executable, "-c", code], env=env, check=False, capture_output=True)
    assert done.returncode == EXIT_REFUSED
    assert list(tmp_path.iterdir()) == []


# --- Free memory is that of the container where there is one.


def group(folder: Path, limit: str, used: int, inactive: int) -> Path:
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {inactive}\n")
    return folder


def test_a_container_has_what_its_limit_leaves(tmp_path: Path) -> None:
    assert free_bytes(group(tmp_path, "10000", 7000, 500)) == 3500


def test_a_container_that_is_full_has_nothing(tmp_path: Path) -> None:
    assert free_bytes(group(tmp_path, "1000", 7000, 0)) == 0


def test_without_a_limit_the_machine_counts(tmp_path: Path) -> None:
    total = psutil.virtual_memory().total
    assert 0 < free_bytes(group(tmp_path, "max", 7000, 500)) <= total
    assert 0 < free_bytes(tmp_path / "nothing") <= total
