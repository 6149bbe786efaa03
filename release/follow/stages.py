"""The stages before a signature, each with its outcome; all is printed as it comes."""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from coserve.setup.engine_env import SGLANG_SETTING, set_up_engine
from release.build import ROOT
from release.follow.candidate import FOLDER, PROMISES, QUIET, Candidate, Outcome, say
from release.follow.engine_list import followed, new_requirements, wheel_requirements
from release.freeze import freeze

NEWEST: Final = "newest"
TESTS: Final[Mapping[str, tuple[str, ...]]] = {
    "mechanisms": ("test_coserving_mechanisms.py", "-m", "not thorough"),
    "owed tokens": ("test_coserving_debt.py", "-k", "1-float32"),
    "random run": ("test_coserving_random.py",),
    "gateway": ("test_gateway.py", "test_engine_fields.py"),
}
"""Files below tests/engine, and what of them."""
_CHANGED_TEXT: Final = " the source of "


def download(wanted: str) -> Path:
    """Fetch a wheel of SGLang, without what it needs.

    Raises:
        SystemExit: The index has none of that version for this host.
    """
    name = "sglang" if wanted == NEWEST else f"sglang=={wanted}"
    into, venv = FOLDER / "wheels" / wanted, FOLDER / "pip"
    if not venv.exists():
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    for old in into.glob("*.whl"):
        old.unlink()
    argv: list[str | Path] = [venv / "bin" / "pip", "download", "--quiet", "--no-deps"]
    argv += ["--disable-pip-version-check", "-d", into, name]
    done = subprocess.run(argv, check=False)
    found = list(into.glob("sglang-*.whl"))
    if done.returncode or not found:
        sys.exit(f"There is no {name} for this host.")
    return found[0]


def compare_needs(candidate: Candidate, wheel: Path) -> Outcome:
    """Make its list out of the nearest signed one and the wheel's pins."""
    wanted = wheel_requirements(wheel)
    old = wheel_requirements(download(candidate.near)) if candidate.near else {}
    listed = candidate.model_list("cpu").read_text()
    text, differences = followed(listed, old, wanted, candidate.version)
    if candidate.near:
        differences += [f"new: {one}" for one in new_requirements(old, wanted)]
    for line in differences:
        say(f"  {line}")
    candidate.own_list.parent.mkdir(parents=True, exist_ok=True)
    candidate.own_list.write_text(text)
    freeze(candidate.own_list)
    return Outcome("wheel", f"{len(differences)} differences")


def build_environment(candidate: Candidate) -> Outcome:
    """Build its environment, where the tests look for it."""
    os.environ.pop(SGLANG_SETTING, None)
    tools = candidate.folder / ".tools"
    if not tools.is_symlink():
        tools.symlink_to(ROOT / ".tools")
    made = set_up_engine(candidate.folder)
    link = candidate.python.parents[1]
    if not link.exists() and not link.is_symlink():
        link.symlink_to(made.parents[1])
    return Outcome("environment", link.name)


def compare_promises(candidate: Candidate) -> Outcome:
    """Print what it has otherwise of what the plugin uses."""
    argv: list[str | Path] = [candidate.python, "-m", PROMISES]
    found = subprocess.run(
        argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=QUIET, check=False
    )
    say(found.stdout.rstrip() or "  nothing that the plugin uses has changed")
    lines = found.stdout.splitlines()
    changed = [
        line.partition(_CHANGED_TEXT)[2].split()[0] for line in lines if _CHANGED_TEXT in line
    ]
    if changed and (near_python := candidate.near_python):
        _show_changes(candidate, near_python, changed)
    num_fatal = sum(line.startswith("must be") for line in lines)
    words = f"{num_fatal} to mend, {len(lines) - num_fatal} to read"
    return Outcome("promises", words, passed=not found.returncode)


def _show_changes(candidate: Candidate, near_python: Path, symbols: list[str]) -> None:
    if not near_python.exists():
        say(f"  (COSERVE_SGLANG={candidate.near} make setup-engine, and the changes are shown)")
        return
    before, after = _texts(near_python, symbols), _texts(candidate.python, symbols)
    for symbol in symbols:
        old, new = (one.get(symbol, "").splitlines() for one in (before, after))
        names = f"{candidate.near} {symbol}", f"{candidate.version} {symbol}"
        say("\n".join(difflib.unified_diff(old, new, *names, lineterm="", n=2)))


def _texts(python: Path, symbols: list[str]) -> dict[str, str]:
    """The source of each symbol in the SGLang of an interpreter."""
    argv: list[str | Path] = [python, "-m", PROMISES, "--texts", *symbols]
    done = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=QUIET, check=True)
    sources: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return sources


def run_tests(candidate: Candidate) -> Iterator[Outcome]:
    """Run what shows that the plugin does its work on it."""
    env = {**QUIET, SGLANG_SETTING: candidate.version, "COSERVE_SGLANG_UNSIGNED": "1"}
    for name, what in TESTS.items():
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:randomly"]
        paths = [f"tests/engine/{one}" if one.endswith(".py") else one for one in what]
        began_s = time.monotonic()
        passed = not subprocess.run([*argv, *paths], cwd=ROOT, env=env, check=False).returncode
        took = f"{time.monotonic() - began_s:.0f} s"
        yield Outcome(name, f"{'passed' if passed else 'FAILED'} in {took}", passed)
