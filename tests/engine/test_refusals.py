"""An engine that cannot start says so in its last line, and a broken plugin serves nobody."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from coserve.setup.engine_env import chosen_sglang
from engine_adapter.cpu_compat.plugin import EXIT_UNFIXED
from engine_adapter.engine_process import engine_command
from engine_adapter.refusal import EXIT_REFUSED, PREFIX, reason_in
from engine_adapter.sglang.versions import family_of
from tests.engine.engine_scripts import ROOT, run_code, run_script
from tests.fixtures.engine import START_LIMIT_S, tiny_settings

pytestmark = pytest.mark.thorough


def last_word(python: Path, model: Path, folder: Path, *args: str, **env: str) -> str:
    """Start an engine that must refuse; the reason in its last line."""
    argv, whole = engine_command(
        tiny_settings(python, model, *args), {"PATH": os.environ["PATH"], "HOME": str(folder)}
    )
    log = folder / "engine.log"
    with log.open("wb") as out:
        done = subprocess.run(
            argv, env={**whole, **env}, cwd=folder, stdout=out, stderr=subprocess.STDOUT,
            timeout=START_LIMIT_S, check=False,
        )  # fmt: skip
    text = log.read_text(errors="replace")
    assert done.returncode == EXIT_REFUSED, text[-3000:]
    assert text.strip().splitlines()[-1] == PREFIX + reason_in(log)
    return reason_in(log)


def test_a_setting_is_refused_before_anything_is_loaded(
    engine_python: Path, tiny_model: Path, tmp_path: Path
) -> None:
    reason = last_word(engine_python, tiny_model, tmp_path, COSERVE_POLICY="fastest")
    assert reason.startswith("COSERVE_POLICY is 'fastest'; choose one of off, ")
    assert "conserve_v1" in reason


def test_a_policy_for_two_pools_of_engines() -> None:
    code = "from engine_adapter.sglang.plugin import register\nregister()\n"
    done = run_code(code, COSERVE_POLICY="distserve")
    assert done.returncode == EXIT_REFUSED
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        PREFIX + "COSERVE_POLICY is 'distserve', which takes two pools of engines; "
    )


def test_what_only_the_scheduler_can_know_ends_the_server_the_same_way(
    engine_python: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """The host's memory meets the model in a scheduler process."""
    reason = last_word(engine_python, tiny_model, tmp_path, COSERVE_HOST_KV_TOKENS=str(10**12))
    assert reason.startswith("COSERVE_HOST_KV_TOKENS=1000000000000 needs ")
    assert "give at most " in reason


def test_a_plugin_that_breaks_at_import_ends_the_process() -> None:
    done = run_code(
        "import sys\n"
        "sys.modules['engine_adapter.sglang.report'] = None\n"
        "from engine_adapter.sglang.plugin import register\n"
        "register()\n"
        "print('registered')\n"
    )
    assert done.returncode == EXIT_REFUSED
    assert "registered" not in done.stdout
    assert done.stderr.splitlines()[-1].startswith(PREFIX + "the plugin could not be loaded")


PROMISES = """
import dataclasses, json
from importlib.metadata import version
from engine_adapter.cpu_compat import plugin as cpu
from engine_adapter.sglang import contract
from engine_adapter.sglang.versions import promises
from engine_adapter.sglang.versions.uses import REQ, SCHEDULER

signed = promises.promises_for(version("sglang"))
as_it_is = promises.differences(signed)
found = {"as it is": as_it_is.fatal + as_it_is.texts + cpu.unlike_signed()}
gone = SCHEDULER + ".gone_in_the_next_release"
loop, ours = SCHEDULER + ".event_loop_normal", SCHEDULER + ".get_next_batch_to_run"
other = dataclasses.replace(
    signed,
    names={"sglang.srt.gone.away": None, gone: [], SCHEDULER + ".flush_cache": ["self", "more"]},
    attributes={REQ: ["rid", "gone", "too"]},
    texts={loop: "0", ours: "0"},
    fixed={**signed.fixed, next(iter(signed.fixed)): "0"},
)
told = promises.differences(other, fixed=True)
found["otherwise"] = [told.fatal, told.texts]
print("RESULTS " + json.dumps(found))
"""


def test_every_kind_of_change_in_sglang_is_one_sentence_and_all_are_told_at_once() -> None:
    done = run_code(PROMISES)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1].removeprefix("RESULTS "))
    assert found["as it is"] == []
    fatal, texts = found["otherwise"]
    wanted = (
        "sglang.srt.gone.away is not there",
        "gone_in_the_next_release is not there",
        "expected ['self', 'more']",
        "has no gone, too",
        "get_next_batch_to_run changed",
        "changed, which is replaced on a CPU",
    )
    for sentence, words in zip(fatal, wanted, strict=True):
        assert words in sentence
    assert ["event_loop_normal changed" in one for one in texts] == [True]


ARGUMENTS = """
import json
from sglang.srt.server_args import ServerArgs
from engine_adapter.sglang.contract import REQUIRED
from engine_adapter.sglang.forms import PLAIN, limits_of_arguments
from engine_adapter.sglang.versions.installed import seam

known = set().union(*(getattr(one, "__annotations__", {}) for one in ServerArgs.__mro__))
found = {}
for name, (_, plain) in PLAIN.items():
    if name in known:
        asked = ServerArgs(model_path="dummy", **{name: "x" if plain is None else not plain})
        found[name] = [one.what for one in limits_of_arguments(seam.resolved(asked))]
plain = [one.what for one in limits_of_arguments(seam.resolved(ServerArgs(model_path="dummy")))]
told = {"found": found, "plain": plain, "missing": sorted({*PLAIN, *REQUIRED} - known)}
print("RESULTS " + json.dumps(told))
"""
LATER = {
    "enable_kv_cache_sharding", "enable_unified_cache_external_linker", "enable_watermark",
    "prefill_decode_interval",
}  # fmt: skip
"""Arguments that SGLang 0.5.16 does not have yet."""


def test_every_argument_that_limits_is_one_of_sglangs_and_is_seen() -> None:
    """A renamed one would pass as one that nobody has given."""
    done = run_code(ARGUMENTS)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1].removeprefix("RESULTS "))
    assert set(told["missing"]) == (LATER if family_of(chosen_sglang(ROOT)) == "0.5.16" else set())
    assert told["plain"] == []
    for name, seen in told["found"].items():
        assert seen == ["--" + name.replace("_", "-")]


OTHER_RELEASE = """
import json, os
from engine_adapter.sglang import contract
from engine_adapter.sglang.versions import promises

found = {}
for release in ("0.5.15", "0.5.17", "0.5.24"):
    contract.version = lambda _name, release=release: release
    for unsigned in ("", "1"):
        asked = {"COSERVE_SGLANG_UNSIGNED": unsigned}
        found[f"{release} {unsigned}"] = contract.broken_promises(asked)
print("RESULTS " + json.dumps([found, contract.signed_versions()]))
"""


def test_a_release_that_nobody_signed_starts_only_where_it_is_asked_for() -> None:
    done = run_code(OTHER_RELEASE)
    assert done.returncode == 0, done.stderr[-3000:]
    found, signed = json.loads(done.stdout.splitlines()[-1].removeprefix("RESULTS "))
    known = f"this plugin was written for {' and '.join(signed)}"
    for release in ("0.5.17", "0.5.24"):
        (sentence,) = found[f"{release} "]
        assert f"SGLang {release} is installed, {known}" in sentence
        assert "COSERVE_SGLANG_UNSIGNED=1" in sentence
        assert found[f"{release} 1"] != [sentence]
    for unsigned in ("", "1"):
        (sentence,) = found[f"0.5.15 {unsigned}"]
        assert "COSERVE_SGLANG_UNSIGNED" not in sentence
    assert [] in (found["0.5.17 1"], found["0.5.24 1"]), "the family that is installed here"


def test_cpu_fixes_that_do_not_fit_end_the_process() -> None:
    done = run_code(
        "from engine_adapter.cpu_compat import plugin\n"
        "more = 'sglang.srt.managers.scheduler.is_work_request'\n"
        "plugin.REPLACED_ON_CPU = (*plugin.REPLACED_ON_CPU, more)\n"
        "plugin.register()\n"
        "print('registered')\n"
    )
    assert done.returncode == EXIT_UNFIXED
    assert "registered" not in done.stdout
    assert "CPU fixes do not fit this SGLang: the source of " in done.stderr


def test_the_processes_of_a_cpu_engine_are_forks() -> None:
    """Spawned ones import SGLang again; SGLang asks for them after the plugin is loaded, too."""
    done = run_code(
        "import multiprocessing\n"
        "from engine_adapter.cpu_compat import plugin\n"
        "plugin.register()\n"
        "multiprocessing.set_start_method('spawn', force=True)\n"
        "print(multiprocessing.get_start_method())\n"
    )
    assert done.stdout.split()[-1:] == ["fork"], done.stderr


def test_requests_are_taken_out_only_between_layers_that_take_what_is_expected() -> None:
    """Elsewhere a drop would end the engine at the first arrival that asks for it."""
    found = run_script("layer_arguments.py")
    assert [found[f"{name}DecoderLayer"] for name in ("Llama", "Qwen2", "Qwen3")] == [""] * 3
    if "residual" in found["wanted"]:
        assert found["Olmo2DecoderLayer"].startswith("Olmo2DecoderLayer takes positions, hidden_st")
    else:  # newer layers keep it to themselves
        assert found["Olmo2DecoderLayer"] == ""
    assert "takes positions, hidden_states, residual" in found["PhiMoEDecoderLayer"]
