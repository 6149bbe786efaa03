"""CI's stages run each test once: `make test` without extras, `make check`, `make test-rest`."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from tests.fixtures.extras import BY_HAND, EXTRAS, missing

ROOT = Path(__file__).parents[2]
TELLS_MARKERS = """
def pytest_collection_finish(session):
    for item in session.items:
        print("item", item.nodeid.replace(" ", "_"), *{mark.name for mark in item.iter_markers()})
"""

Markers = frozenset[str]


@pytest.fixture(scope="module")
def tests(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Markers]:
    """Every test and its markers."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "tells_markers.py").write_text(TELLS_MARKERS)
    env = {**os.environ, "PYTHONPATH": str(folder)}
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-n", "0", "tests"]
    options = ["-p", "tells_markers", "-p", "no:cacheprovider", "-p", "no:randomly"]
    done = subprocess.run(
        [*argv, *options], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    told = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("item ")]
    assert len(told) > 1000
    return {name: frozenset(markers) for name, *markers in told}


def recipe(verb: str, **variables: str) -> list[str]:
    """The arguments that a verb gives pytest."""
    makefile = (ROOT / "Makefile").read_text()
    lines = re.search(rf"^{verb}: setup.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert lines is not None, verb
    (line,) = (one for one in lines[1].splitlines() if "pytest " in one or "$(PYTEST)" in one)
    for name, value in variables.items():
        line = line.replace(f"$({name})", value)
    line = re.sub(r"^\t(\$\(PYTEST\)|\S*pytest)", "", line).replace("-p no:randomly", "")
    return shlex.split(line)


def _is_in(markers: Markers, name: str, /, **_: object) -> bool:
    return name in markers


def selected(tests: dict[str, Markers], arguments: list[str]) -> set[str]:
    """Those that a pytest with these arguments runs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="+")
    parser.add_argument("--ignore", default="nothing")
    parser.add_argument("-m", default="not nothing")
    told, _ = parser.parse_known_args(arguments)
    expression = Expression.compile(told.m)
    return {
        name
        for name, markers in tests.items()
        if name.startswith(told.folder[-1])
        and not name.startswith(told.ignore)
        and expression.evaluate(partial(_is_in, markers))
    }


@pytest.mark.parametrize("lacking", [[], ["browser"], ["pgbouncer", "proxies"], [*EXTRAS]], ids=str)
def test_each_test_runs_in_one_stage(tests: dict[str, Markers], lacking: list[str]) -> None:
    first = selected(tests, recipe("test"))
    skipped = {name for name in first if tests[name] & set(lacking)}
    shape = selected(tests, recipe("check"))
    rest = selected(tests, recipe("test-rest", LEFT_OUT=" or ".join(["thorough", *lacking])))
    stages = [first - skipped, shape, rest]
    by_hand = {name for name, markers in tests.items() if "release" in markers}
    assert set().union(*stages) == set(tests) - by_hand
    assert sum(map(len, stages)) == len(tests) - len(by_hand), "one runs twice"
    assert bool(skipped) == bool(lacking)


def test_ci_runs_the_readmes_verb_before_anything_is_set_up() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    verbs = [verb for line in lines if not line.startswith("#")
             for verb in re.findall(r"make ([\w-]+)", line)]  # fmt: skip
    setups = [f"setup-{name}" for name in EXTRAS if name not in BY_HAND]
    assert verbs[0] == "test"
    assert sorted(verb for verb in verbs if verb.startswith("setup")) == sorted(setups)
    assert verbs.index("test-rest") > max(map(verbs.index, setups))
    assert verbs[-1] == "fuzz"
    assert verbs.count("check") == verbs.count("test-rest") == verbs.count("test") == 1


def test_extras_are_markers_and_what_is_missing_is_left_out() -> None:
    declared = (ROOT / "pyproject.toml").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for name in EXTRAS:
        assert f'  "{name}: ' in declared
        assert re.search(rf"^setup-{name}:", makefile, re.MULTILINE)
    argv = [sys.executable, "-m", "tests.fixtures.extras"]
    told = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert told.strip().split(" or ") == ["thorough", *missing()]
