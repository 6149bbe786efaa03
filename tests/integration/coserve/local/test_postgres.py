"""The embedded database: idempotent, survives kill -9, runs for root and for an ordinary user."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coserve.local import postgres
from coserve.local.part import ManagedProcess, Part, PartState
from coserve.local.plans import postgres_plan
from coserve.local.postgres import can_pass, reachable_directory, server_account

ROOT = Path(__file__).parents[4]
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="about running as root")


@pytest.fixture
def home() -> Iterator[Path]:
    """Not pytest's own folder: other users cannot pass through that, and its path is long."""
    path = Path(tempfile.mkdtemp(prefix="cst-"))
    yield path
    shutil.rmtree(path)


def postmaster_pid(files: postgres.PostgresFiles) -> int:
    return int((files.data_dir / "postmaster.pid").read_text().splitlines()[0])


async def until_ready(part: Part, num_restarts: int) -> None:
    async with asyncio.timeout(30):
        while not (part.num_restarts >= num_restarts and part.state is PartState.READY):
            await asyncio.sleep(0.05)


async def test_a_killed_server_comes_back_with_its_data(home: Path) -> None:
    files = postgres.prepare(home)
    said: list[str] = []
    part = Part(postgres_plan(files, home), say=said.append, changed=lambda: None)
    await part.start()
    async with asyncio.TaskGroup() as group:
        keeper = group.create_task(part.keep())
        assert postgres.ensure_database(files, "app")
        assert not postgres.ensure_database(files, "app")
        with files.connect("app") as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        os.kill(postmaster_pid(files), signal.SIGKILL)
        await until_ready(part, 1)
        with files.connect("app") as connection:
            row = connection.execute("SELECT answer FROM kept").fetchone()
        assert row == (42,)
        keeper.cancel()
    assert any("starting it again" in line for line in said)
    assert postgres.running_url(home) == files.url("app")
    started_at = time.monotonic()
    await part.stop()
    assert time.monotonic() - started_at < 4
    assert postgres.running_url(home) is None
    assert postgres.prepare(home) == files


def test_a_leftover_server_is_ended_before_ours_starts(home: Path) -> None:
    files = postgres.prepare(home, durable=False)
    argv = postgres.command(files, home / "log", durable=False).argv
    account = files.account
    leftover = subprocess.Popen(
        argv,
        cwd="/",
        user=account.uid if account else None,
        group=account.gid if account else None,
        stderr=subprocess.DEVNULL,
    )
    limit = time.monotonic() + 20
    while not postgres.is_ready(files):
        assert time.monotonic() < limit
        time.sleep(0.05)
    assert postgres.stop_leftover(files)
    assert leftover.wait(10) == 0
    assert not postgres.stop_leftover(files)


def test_a_half_made_cluster_is_never_used(home: Path) -> None:
    files = postgres.prepare(home, durable=False)
    shutil.rmtree(files.data_dir)
    files.data_dir.mkdir()
    (files.data_dir / "somebody's file").touch()
    with pytest.raises(postgres.PostgresError, match="move it away"):
        postgres.prepare(home, durable=False)
    assert [path.name for path in files.data_dir.iterdir()] == ["somebody's file"]
    assert [path.name for path in files.data_dir.parent.glob("data.*")] == []


def test_a_deep_state_directory_gets_a_short_socket(home: Path) -> None:
    deep = home / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    files = postgres.prepare(deep, durable=False)
    try:
        assert len(str(files.socket_dir)) < 80
        process = ManagedProcess(postgres.command(files, home / "log", durable=False))
        limit = time.monotonic() + 20
        while not postgres.is_ready(files):
            assert time.monotonic() < limit
            assert process.poll() is None
            time.sleep(0.05)
        process.stop()
        assert postgres.prepare(deep, durable=False).socket_dir == files.socket_dir
    finally:
        shutil.rmtree(files.socket_dir)


@only_root
def test_under_root_a_closed_directory_is_left_for_one_that_nobody_can_reach(home: Path) -> None:
    closed = home / "closed"
    closed.mkdir(mode=0o700)
    account = server_account()
    assert account is not None
    base = reachable_directory(closed / "state", account)
    try:
        assert not base.is_relative_to(home)
        assert can_pass(base)
        assert base.stat().st_uid == 0
        files = postgres.prepare(closed / "state", durable=False)
        process = ManagedProcess(postgres.command(files, home / "log", durable=False))
        limit = time.monotonic() + 20
        while not postgres.is_ready(files):
            assert time.monotonic() < limit
            assert process.poll() is None
            time.sleep(0.05)
        process.stop()
    finally:
        shutil.rmtree(base)


@only_root
def test_an_ordinary_user_needs_no_rights(home: Path) -> None:
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    candidates = [Path(sys.executable).resolve(), Path("/usr/bin") / name]
    python = next((p for p in candidates if p.exists() and can_pass(p.parent)), None)
    if python is None:
        pytest.skip("no interpreter of this version that another user can start")
    account = server_account()
    assert account is not None
    os.chown(home, account.uid, account.gid)
    code = textwrap.dedent(
        """
        import os, sys, time
        from pathlib import Path
        from coserve.local import postgres
        from coserve.local.part import ManagedProcess
        home = Path(sys.argv[1])
        files = postgres.prepare(home, durable=False)
        process = ManagedProcess(postgres.command(files, home / "log", durable=False))
        for _ in range(400):
            if postgres.is_ready(files) or process.poll() is not None:
                break
            time.sleep(0.05)
        with files.connect() as connection:
            print(os.geteuid(), *connection.execute("SELECT current_user").fetchone())
        print(process.stop(), files.data_dir.owner())
        """
    )
    done = subprocess.run(
        [python, "-c", code, str(home)],
        cwd="/",
        env={
            "PATH": os.defpath,
            "PYTHONPATH": f"{ROOT}:{sysconfig.get_paths()['purelib']}",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        user=account.uid,
        group=account.gid,
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(account.uid), "app", "0", "nobody"]


@only_root
def test_under_root_the_state_directory_is_closed_to_others(home: Path) -> None:
    account = server_account()
    assert account is not None
    home.chmod(0o755)
    state = home / "state"
    state.mkdir(mode=0o755)
    assert reachable_directory(state, account) == state / "postgres"
    found = state.stat()
    assert (found.st_mode & 0o777, found.st_gid) == (0o710, account.gid)
