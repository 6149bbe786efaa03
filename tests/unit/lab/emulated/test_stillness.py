"""Whether everybody waits, told from what the kernel says of their threads."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lab.emulated.stillness import Stillness, processes_of_group

WAITS = "import sys; print(flush=True); sys.stdin.readline()"
SPINS = "print(flush=True)\nwhile True: pass"
PASSES_ON = """
import os, threading
there, back = os.pipe(), os.pipe()
def other():
    while True:
        os.write(back[1], os.read(there[0], 1))
threading.Thread(target=other, daemon=True).start()
print(flush=True)
while True:
    os.write(there[1], b".")
    os.read(back[0], 1)
"""


@contextmanager
def process(program: str) -> Iterator[subprocess.Popen[str]]:
    """A process in a group of its own that has said that it is there."""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as started:
        assert started.stdout is not None
        started.stdout.readline()
        try:
            yield started
        finally:
            started.kill()


def becomes_still(still: Stillness) -> bool:
    """Asked until the process has got from its last line of output into its sleep."""
    for _ in range(400):
        if still():
            return True
        time.sleep(0.005)
    return False


@pytest.mark.timeout(30)
def test_who_waits_is_still_until_it_is_woken() -> None:
    with process(WAITS) as waits:
        still = Stillness([os.getpid(), waits.pid])
        assert becomes_still(still)
        still.close()


@pytest.mark.timeout(30)
@pytest.mark.parametrize("program", [SPINS, PASSES_ON])
def test_who_computes_is_never_still_nor_are_threads_that_wake_each_other(program: str) -> None:
    """Each of the two threads is found asleep, one after the other."""
    with process(program) as busy:
        still = Stillness([busy.pid])
        assert not any(still() for _ in range(1000))
        still.close()


@pytest.mark.timeout(30)
def test_the_processes_of_a_group_are_found_and_one_that_ends_is_forgotten() -> None:
    with process(WAITS) as waits:
        assert processes_of_group(waits.pid) == [waits.pid]
        still = Stillness([waits.pid])
        assert becomes_still(still)
        waits.kill()
        waits.wait()
        assert becomes_still(still)
        still.close()
    assert processes_of_group(waits.pid) == []
