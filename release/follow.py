"""`make follow VERSION=0.5.24`: how far coserve is from another release of SGLang, in ten minutes.

    wheel         downloaded; what it needs otherwise than the signed release before it
    environment   .venv-engine-VERSION, from a list that follows the wheel's own pins
    promises      what is gone, takes other parameters or has another text, with the change
    tests         mechanisms, owed tokens, a random run, the gateway, the fields of requests

Everything it makes lies in `.tools/follow/VERSION`, so nothing of the checkout changes. With
`SIGN=1` it writes what signs the release, for a person to read and commit (CONTRIBUTING).
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from coserve.setup.engine_env import SGLANG_SETTING, set_up_engine
from engine_adapter.sglang.versions.promises import SIGNED_DIR, promises_for, signed_versions
from release.engine_list import followed, new_requirements, wheel_requirements
from release.freeze import freeze

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / ".tools" / "follow"
NEWEST: Final = "newest"
MODULE: Final = "engine_adapter.sglang.versions.promises"
TESTS: Final[Mapping[str, tuple[str, ...]]] = {
    "mechanisms": ("test_coserving_mechanisms.py", "-m", "not thorough"),
    "owed tokens": ("test_coserving_debt.py", "-k", "1-float32"),
    "random run": ("test_coserving_random.py",),
    "gateway": ("test_gateway.py", "test_engine_fields.py"),
}
"""Files below tests/engine, and what of them."""
_TEXT: Final = " the source of "
_QUIET: Final = {**os.environ, "PYTHONWARNINGS": "ignore"}


@dataclass(slots=True)
class Release:
    """The release that is followed.

    Attributes:
        version: Its number.
        near: The signed release that it is held to; none if no release of its family is signed.
        base: Where everything of it lies.
        outcomes: What each stage came to, in a few words.
        broken: Stages that stand in the way of a signature.
    """

    version: str
    near: str | None
    base: Path
    outcomes: dict[str, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        return ROOT / f".venv-engine-{self.version}" / "bin" / "python"

    @property
    def own_list(self) -> Path:
        """What its environment is made from."""
        return self.base / "requirements" / "engine-cpu.in"


def download(wanted: str) -> Path:
    """Fetch a wheel of SGLang, without what it needs.

    Raises:
        SystemExit: The index has none of that version for this host.
    """
    name = "sglang" if wanted == NEWEST else f"sglang=={wanted}"
    into = FOLDER / "wheels" / wanted
    argv = [sys.executable, "-m", "venv", str(FOLDER / "pip")]
    if not (FOLDER / "pip").exists():
        subprocess.run(argv, check=True)
    pip = FOLDER / "pip" / "bin" / "pip"
    for old in into.glob("*.whl"):
        old.unlink()
    done = subprocess.run(
        [pip, "download", "--quiet", "--no-deps", "--disable-pip-version-check", "-d", into, name],
        check=False,
    )
    found = list(into.glob("sglang-*.whl"))
    if done.returncode or not found:
        sys.exit(f"There is no {name} for this host.")
    return found[0]


def compare_needs(release: Release, wheel: Path) -> None:
    """Make the list of the release out of the nearest signed one and the wheel's pins."""
    listed = ROOT / "requirements" / _list_name(release.near or signed_versions()[-1])
    wanted = wheel_requirements(wheel)
    old = wheel_requirements(download(release.near)) if release.near else {}
    text, told = followed(listed.read_text(), old, wanted, release.version)
    if release.near:
        told += [f"new: {one}" for one in new_requirements(old, wanted)]
    for line in told:
        _say(f"  {line}")
    release.own_list.parent.mkdir(parents=True, exist_ok=True)
    release.own_list.write_text(text)
    freeze(release.own_list)
    release.outcomes["wheel"] = f"{len(told)} differences"


def build(release: Release) -> None:
    """Build its environment, where the tests look for it."""
    os.environ.pop(SGLANG_SETTING, None)
    tools = release.base / ".tools"
    if not tools.is_symlink():
        tools.symlink_to(ROOT / ".tools")
    made = set_up_engine(release.base)
    link = release.python.parents[1]
    if not link.exists() and not link.is_symlink():
        link.symlink_to(made.parents[1])
    release.outcomes["environment"] = link.name


def compare_promises(release: Release) -> None:
    """Print what the release has otherwise of what the plugin uses."""
    found = subprocess.run(
        [release.python, "-m", MODULE],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env=_QUIET,
        check=False,
    )
    _say(found.stdout.rstrip() or "  nothing that the plugin uses has changed")
    lines = found.stdout.splitlines()
    changed = [line.partition(_TEXT)[2].split()[0] for line in lines if _TEXT in line]
    if release.near and changed:
        _show_changes(release, changed)
    fatal = sum(line.startswith("must be") for line in lines)
    release.outcomes["promises"] = f"{fatal} to mend, {len(lines) - fatal} to read"
    if found.returncode:
        release.broken.append("promises")


def _show_changes(release: Release, symbols: list[str]) -> None:
    assert release.near is not None
    near = _python_of(release.near)
    if not near.exists():
        _say(f"  (COSERVE_SGLANG={release.near} make setup-engine, and the changes are shown)")
        return
    before, after = _texts(near, symbols), _texts(release.python, symbols)
    for symbol in symbols:
        old, new = (one.get(symbol, "").splitlines() for one in (before, after))
        names = f"{release.near} {symbol}", f"{release.version} {symbol}"
        _say("\n".join(difflib.unified_diff(old, new, *names, lineterm="", n=2)))


def _texts(python: Path, symbols: list[str]) -> dict[str, str]:
    argv: list[str | Path] = [python, "-m", MODULE, "--texts", *symbols]
    done = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=_QUIET, check=True)
    told: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return told


def run_tests(release: Release) -> None:
    """Run what shows that the plugin does its work on the release."""
    env = {**_QUIET, SGLANG_SETTING: release.version, "COSERVE_SGLANG_UNSIGNED": "1"}
    for name, what in TESTS.items():
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:randomly"]
        paths = [f"tests/engine/{one}" if one.endswith(".py") else one for one in what]
        began_s = time.monotonic()
        done = subprocess.run([*argv, *paths], cwd=ROOT, env=env, check=False)
        passed = done.returncode == 0
        took = f"{time.monotonic() - began_s:.0f} s"
        release.outcomes[name] = f"{'passed' if passed else 'FAILED'} in {took}"
        if not passed:
            release.broken.append(name)


def sign(release: Release) -> None:
    """Write what signs it: lists and promises."""
    requirements = ROOT / "requirements"
    for ending in ("in", "txt"):
        text = release.own_list.with_suffix(f".{ending}").read_text()
        target = requirements / f"engine-cpu-{release.version}.{ending}"
        target.write_text(text.replace("engine-cpu.in", f"engine-cpu-{release.version}.in"))
    near = release.near or signed_versions()[-1]
    cuda = (requirements / _list_name(near).replace("cpu", "cuda")).read_text()
    (requirements / f"engine-cuda-{release.version}.in").write_text(
        cuda.replace(f"sglang=={near}", f"sglang=={release.version}")
    )
    argv: list[str | Path] = [release.python, "-m", MODULE, "--write"]
    subprocess.run(argv, cwd=ROOT, check=True)


def take_back(release: Release) -> None:
    """Remove the lists and the signature that were written for it."""
    for written in _signatures(release.version):
        written.unlink(missing_ok=True)


def follow(version: str, *, tests: bool = True, signs: bool = False) -> int:
    """Do all of it; 0 where nothing stands in the way of a signature.

    Who signs has read what changed: it is tested as signed, and is not where a test fails.
    """
    wheel = download(version)
    version = wheel.name.split("-")[1]
    known = promises_for(version)
    release = Release(version, known.sglang if known else None, FOLDER / version)
    _say(f"SGLang {version}, held to {release.near or 'nothing: no release like it is signed'}")
    stages: dict[str, Callable[[], None]] = {
        "what it needs": lambda: compare_needs(release, wheel),
        "its environment": lambda: build(release),
        "what the plugin uses of it": lambda: compare_promises(release),
    }
    for name, stage in stages.items():
        _say(f"\n{name}")
        stage()
    if signs:
        sign(release)
        release.broken.clear()
    if tests and not release.broken:
        _say("\ntests")
        run_tests(release)
    if signs and release.broken:
        take_back(release)
    _say(f"\nSGLang {version}")
    for name, outcome in release.outcomes.items():
        _say(f"  {name:12} {outcome}")
    _say(_what_is_left(release, signs=signs))
    return int(bool(release.broken))


def _what_is_left(release: Release, *, signs: bool) -> str:
    again = f"make follow VERSION={release.version} SIGN=1"
    if release.broken == ["promises"]:
        return (
            f"It would refuse to start. Read what is to be looked at, mend the seam, then {again}"
        )
    if release.broken:
        return f"Not signed: {', '.join(release.broken)}."
    if signs:
        return "Signed in files: run `make lock-engine`, then commit what git shows."
    if release.version in signed_versions():
        return "It is signed."
    return f"Nothing stands in the way of a signature: read the above, then {again}"


def _signatures(version: str) -> list[Path]:
    lists = [f"engine-cpu-{version}.in", f"engine-cpu-{version}.txt", f"engine-cuda-{version}.in"]
    return [*(ROOT / "requirements" / one for one in lists), SIGNED_DIR / f"{version}.json"]


def _python_of(version: str) -> Path:
    own = ROOT / f".venv-engine-{version}"
    return (own if own.exists() else ROOT / ".venv-engine") / "bin" / "python"


def _list_name(version: str) -> str:
    own = f"engine-cpu-{version}.in"
    return own if (ROOT / "requirements" / own).exists() else "engine-cpu.in"


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - the command's answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", help=f"a release, or {NEWEST!r}")
    parser.add_argument("--no-tests", action="store_true", help="compare only")
    parser.add_argument("--sign", action="store_true", help="write what signs it")
    options = parser.parse_args()
    return follow(options.version, tests=not options.no_tests, signs=options.sign)


if __name__ == "__main__":
    sys.exit(main())
