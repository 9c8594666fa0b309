"""The thread pool under load: barriers, several Python threads, fork, exit."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from isobit.runtime.program import Runtime
from tests.runtime.hand_kernels import addresses, rotated, rotations

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 8])
def test_barriers(runtime: Runtime, threads: int) -> None:
    """Each launch reads what the neighbouring thread wrote in the one before."""
    x = np.arange(97, dtype=np.int64)
    y, z = np.zeros_like(x), np.zeros_like(x)
    program = runtime.with_threads(threads).load(rotations(97, 10))
    want = rotated(x, 10)
    calls = 4000 if threads <= 2 else 400
    for _ in range(calls):
        z[:] = 0
        program.run(addresses(x), addresses(y, z))
        assert np.array_equal(z, want)


def test_workers_that_went_to_sleep_wake_up(runtime: Runtime) -> None:
    x = np.arange(97, dtype=np.int64)
    y, z = np.zeros_like(x), np.zeros_like(x)
    program = runtime.with_threads(3).load(rotations(97, 4))
    for pause in np.random.default_rng(1).uniform(0, 0.004, 150):
        time.sleep(pause)
        z[:] = 0
        program.run(addresses(x), addresses(y, z))
        assert np.array_equal(z, rotated(x, 4))


def test_a_call_is_over_for_the_workers_too(cache_dir: Path) -> None:
    """No worker looks at a program after its call, even one without a launch to meet at: its memory may be gone."""
    done = run_script(EMPTY_PROGRAMS, cache_dir)
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("done", "", 0)


def test_several_python_threads_run_one_program(runtime: Runtime) -> None:
    program = runtime.with_threads(2).load(rotations(1001, 6))
    failures: list[object] = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).integers(0, 1000, 1001)
        y, z = np.zeros_like(x), np.zeros_like(x)
        for _ in range(1500):
            z[:] = 0
            program.run(addresses(x), addresses(y, z))
            if not np.array_equal(z, rotated(x, 6)):
                failures.append(seed)

    callers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert failures == []


def test_workers_end_with_their_runtime(runtime: Runtime) -> None:
    mine = runtime.with_threads(3)
    program = mine.load(rotations(10, 2))
    before = set(threading.enumerate())
    x, y, z = (np.zeros(10, np.int64) for _ in range(3))
    program.run(addresses(x), addresses(y, z))
    workers = set(threading.enumerate()) - before
    assert len(workers) == 2
    assert all(worker.daemon for worker in workers)
    del mine, program
    gc.collect()
    for worker in workers:
        worker.join(timeout=10)
        assert not worker.is_alive()


SCRIPT_HEAD = """
import os, sys, threading
import numpy as np
from tests.runtime.hand_kernels import addresses, rotated, rotations
from isobit.runtime.program import Runtime, RuntimeOptions
from pathlib import Path
runtime = Runtime(RuntimeOptions(threads=3, cache_dir=Path(sys.argv[1])))
program = runtime.load(rotations(97, 6))
x = np.arange(97, dtype=np.int64)
def check():
    y, z = np.zeros_like(x), np.zeros_like(x)
    program.run(addresses(x), addresses(y, z))
    assert np.array_equal(z, rotated(x, 6))
    return threading.active_count()
"""


def run_script(body: str, cache_dir: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": f"{SOURCE}:{HERE}", "PATH": ""}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SCRIPT_HEAD + body, str(cache_dir)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


EMPTY_PROGRAMS = """
from isobit.runtime.program import ProgramSpec
import time
check()
for i in range(2000):
    empty = runtime.load(ProgramSpec((), i % 5, 0))
    empty.call(*range(i % 5))
    del empty
    junk = [bytearray(b"\\xff") * 56 for _ in range(20)]
    if i % 100 == 0:
        time.sleep(0.002)
        check()
print("done")
"""

FORK = """
assert check() == 3
def child():
    assert threading.active_count() == 1  # nothing is started before it is needed
    for _ in range(50):
        assert check() == 3
children = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        try:
            child()
            grandchild = os.fork()
            if grandchild == 0:
                child()
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]) == 0
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    children.append(pid)
    assert check() == 3
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])
"""

FORK_DURING_CALLS = """
stop = threading.Event()
def hammer():
    while not stop.is_set():
        check()
hammers = [threading.Thread(target=hammer) for _ in range(2)]
for h in hammers: h.start()
codes = []
for _ in range(10):
    pid = os.fork()
    if pid == 0:
        try:
            for _ in range(20): check()
        except BaseException:
            os._exit(1)
        os._exit(0)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
stop.set()
for h in hammers: h.join()
print(codes)
"""

EXITS = {
    "at the end": "check()",
    "without a call": "",
    "by sys.exit": "check(); sys.exit(0)",
    "with a busy daemon thread": "def busy():\n    while True: check()\n"
    "threading.Thread(target=busy, daemon=True).start(); check()",
    "with a call at exit": "import atexit; atexit.register(check); check()",
}


def test_a_forked_child_has_a_pool_of_its_own(cache_dir: Path) -> None:
    done = run_script(FORK, cache_dir)
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("[0, 0, 0]", "", 0)


def test_fork_while_other_threads_are_in_calls(cache_dir: Path) -> None:
    done = run_script(FORK_DURING_CALLS, cache_dir)
    assert (done.stdout.strip(), done.stderr, done.returncode) == (str([0] * 10), "", 0)


@pytest.mark.parametrize("how", EXITS)
def test_the_interpreter_exits_cleanly(how: str, cache_dir: Path) -> None:
    done = run_script(EXITS[how], cache_dir)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
