"""A process behind its shim, with real processes: nothing outlives what it belongs to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from coserve.local.command import Command, LogLimits
from coserve.local.part import ManagedProcess

LIMIT_S = 15.0
# A grandchild in a session of its own that ignores SIGTERM: the worst guest.
STUBBORN = (
    "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('pid', os.getpid(), flush=True); time.sleep(600)"
)
PARENT_OF_STUBBORN = textwrap.dedent(
    f"""
    import os, signal, subprocess, sys, time
    subprocess.Popen([sys.executable, "-c", {STUBBORN!r}], start_new_session=True)
    print("pid", os.getpid(), flush=True)
    time.sleep(600)
    """
)


def python(name: str, code: str, log: Path, **more: object) -> Command:
    argv = (sys.executable, "-c", code)
    return Command(name, argv, log, env=dict(os.environ), **more)  # type: ignore[arg-type]


def wait_until(true: Callable[[], bool], what: str) -> None:
    limit = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < limit, what
        time.sleep(0.02)


def pids_in(log: Path, count: int) -> list[int]:
    def found() -> list[int]:
        lines = log.read_text().splitlines() if log.exists() else []
        return [int(line.split()[1]) for line in lines if line.startswith("pid ")]

    wait_until(lambda: len(found()) == count, f"{count} processes in {log}")
    return found()


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log" / "child.log"


def test_output_goes_to_the_log_and_the_exit_code_comes_back(log: Path) -> None:
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"
    process = ManagedProcess(python("child", code, log))
    wait_until(lambda: process.poll() is not None, "the end")
    assert process.poll() == 7
    assert sorted(log.read_text().split()) == ["err", "out"]


def test_a_program_that_is_not_there_is_told_in_the_log(log: Path) -> None:
    process = ManagedProcess(Command("child", ("/no/such/program",), log, env=dict(os.environ)))
    wait_until(lambda: process.poll() is not None, "the end")
    assert process.poll() == 127
    assert "cannot start /no/such/program" in log.read_text()


def test_a_death_by_signal_is_an_exit_code_above_128(log: Path) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    process = ManagedProcess(python("child", code, log))
    wait_until(lambda: process.poll() is not None, "the end")
    assert process.poll() == 128 + signal.SIGKILL


def test_stop_sends_the_stop_signal_of_the_process(log: Path) -> None:
    code = textwrap.dedent(
        """
        import os, signal, sys, time
        signal.signal(signal.SIGQUIT, lambda *_: sys.exit(42))
        print("pid", os.getpid(), flush=True)
        time.sleep(600)
        """
    )
    process = ManagedProcess(python("child", code, log, stop_signal=signal.SIGQUIT))
    pids_in(log, 1)
    assert process.stop() == 42


def test_what_does_not_end_in_time_is_killed_with_all_below_it(log: Path) -> None:
    command = python("child", PARENT_OF_STUBBORN, log, stop_grace_s=0.3)
    process = ManagedProcess(command)
    pids = pids_in(log, 2)
    started_at = time.monotonic()
    process.stop()
    assert time.monotonic() - started_at < 5
    assert [pid for pid in pids if alive(pid)] == []


def test_grandchildren_die_when_the_process_ends_by_itself(log: Path) -> None:
    code = PARENT_OF_STUBBORN.replace("time.sleep(600)", "time.sleep(1)")
    process = ManagedProcess(python("child", code, log))
    pids = pids_in(log, 2)
    wait_until(lambda: process.poll() is not None, "the end")
    assert [pid for pid in pids if alive(pid)] == []


def test_asking_twice_kills_at_once(log: Path) -> None:
    process = ManagedProcess(python("child", STUBBORN, log, stop_grace_s=60.0))
    pids = pids_in(log, 1)
    process.ask_to_stop()
    time.sleep(0.2)
    assert alive(pids[0])
    process.ask_to_stop()
    wait_until(lambda: process.poll() is not None, "the end")
    assert not alive(pids[0])


def test_nothing_outlives_a_supervisor_that_is_killed(log: Path) -> None:
    code = textwrap.dedent(
        f"""
        import os, sys, time
        from pathlib import Path
        from coserve.local.command import Command
        from coserve.local.part import ManagedProcess
        argv = (sys.executable, "-c", {PARENT_OF_STUBBORN!r})
        ManagedProcess(Command("child", argv, Path({str(log)!r}), env=dict(os.environ)))
        time.sleep(600)
        """
    )
    supervisor = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    pids = pids_in(log, 2)
    supervisor.kill()
    supervisor.wait()
    wait_until(lambda: not any(alive(pid) for pid in pids), "children of a killed supervisor")


def test_the_process_dies_with_its_shim(log: Path) -> None:
    process = ManagedProcess(python("child", STUBBORN, log))
    pids = pids_in(log, 1)
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: process.poll() is not None, "the shim")
    assert process.poll() == 128 + signal.SIGKILL
    wait_until(lambda: not alive(pids[0]), "the process")


def test_the_terminals_interrupt_does_not_reach_the_process(log: Path) -> None:
    process = ManagedProcess(python("child", STUBBORN, log, stop_grace_s=0.1))
    pids = pids_in(log, 1)
    assert os.getpgid(pids[0]) != os.getpgid(0)
    assert os.getpgid(process.pid) != os.getpgid(0)
    os.kill(process.pid, signal.SIGINT)
    time.sleep(0.2)
    assert alive(pids[0])
    process.stop()


def test_the_process_inherits_no_descriptor(log: Path) -> None:
    code = "import os; print(sorted(os.listdir('/proc/self/fd'))[:4])"
    with log.parent.parent.joinpath("lock").open("w") as lock:
        process = ManagedProcess(python("child", code, log), inherited_fds=(lock.fileno(),))
        wait_until(lambda: process.poll() is not None, "the end")
    assert log.read_text().strip() == "['0', '1', '2', '3']"  # 3 is the listing itself


def test_the_log_is_bounded(log: Path) -> None:
    code = "for _ in range(2000): print('x' * 99)"
    limits = LogLimits(max_bytes=20_000, keep=1)
    process = ManagedProcess(python("child", code, log, log_limits=limits))
    wait_until(lambda: process.poll() is not None, "the end")
    assert sorted(path.name for path in log.parent.iterdir()) == ["child.log", "child.log.1"]
    # What arrives in one read is written as one piece (64 KiB at most).
    assert sum(path.stat().st_size for path in log.parent.iterdir()) <= 2 * (20_000 + 65_536)


@pytest.mark.parametrize("ending", ["asked", "killed"])
def test_what_it_leaves_elsewhere_is_removed_and_nobody_elses(
    log: Path, tmp_path: Path, ending: str
) -> None:
    """As SGLang's schedulers leave their files in /dev/shm; a neighbour has one like it."""
    own, other = tmp_path / "loads_own", tmp_path / "loads_other"
    other.touch()
    opener = f"import time; kept = open({str(own)!r}, 'w'); time.sleep(600)"
    code = textwrap.dedent(
        f"""
        import os, subprocess, sys, time
        subprocess.Popen([sys.executable, "-c", {opener!r}])
        print("pid", os.getpid(), flush=True)
        time.sleep(600)
        """
    )
    command = python("child", code, log, leftovers=str(tmp_path / "loads_"), stop_grace_s=1.0)
    process = ManagedProcess(command)
    (pid,) = pids_in(log, 1)
    wait_until(own.exists, "the file")
    if ending == "asked":
        process.stop()
    else:
        time.sleep(2.5)  # the shim looks every two seconds until it has seen one
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: process.poll() is not None, "the end")
    assert not own.exists()
    assert other.exists()
