"""Programs: what a launch gets to see, slots, arenas, errors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from isobit.codegen.kernel import KernelSource
from isobit.codegen.objects import KernelError
from isobit.codegen.target import UnsupportedLevelError, host_levels
from isobit.runtime.program import Launch, ProgramSpec, Runtime, RuntimeOptions
from tests.runtime.hand_kernels import ARENA, REPORT, addresses, binary, rotated, rotations


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("n", [0, 1, 2, 7, 1000])
def test_every_element_is_done_by_one_thread(runtime: Runtime, threads: int, n: int) -> None:
    rng = np.random.default_rng(n)
    a, b = rng.standard_normal((2, n), np.float32)
    c = np.full(n, np.nan, np.float32)
    program = runtime.with_threads(threads).load(ProgramSpec((Launch(binary("fadd"), (n,)),), 2, 1))
    program.run(addresses(a, b), addresses(c))
    assert np.array_equal(c, a + b)


def test_threads_and_serial_launches(runtime: Runtime) -> None:
    """A parallel launch runs once on each thread; a serial one on thread 0, which is told that it is alone."""
    seen, counts = np.zeros(4, np.int64), np.zeros(4, np.int64)
    for parallel, want in ((True, [1004, 1104, 1204, 1304]), (False, [1001, 0, 0, 0])):
        seen[:], counts[:] = 0, 0
        spec = ProgramSpec((Launch(REPORT, (1000,), parallel),), 0, 2)
        runtime.with_threads(4).load(spec).run([], addresses(seen, counts))
        assert seen.tolist() == want
        assert counts.tolist() == ([1] * 4 if parallel else [1, 0, 0, 0])


def test_a_program_that_is_not_parallel_stays_on_its_thread(runtime: Runtime) -> None:
    seen, counts = np.zeros(4, np.int64), np.zeros(4, np.int64)
    spec = ProgramSpec((Launch(REPORT, (0,)),), 0, 2, parallel=False)
    runtime.with_threads(4).load(spec).run([], addresses(seen, counts))
    assert (seen.tolist(), counts.tolist()) == ([1, 0, 0, 0], [1, 0, 0, 0])


def test_serial_and_parallel_launches_in_turn(runtime: Runtime) -> None:
    """Barriers that are left out between serial launches leave the order as it is."""
    x = np.arange(50, dtype=np.int64)
    y, z = np.zeros_like(x), np.zeros_like(x)
    spec = rotations(50, 12)
    kinds = [True, False, False, False, True, True, False, True, False, False, True, False]
    launches = tuple(Launch(old.kernel, old.args, kind) for old, kind in zip(spec.launches, kinds, strict=True))
    program = runtime.with_threads(3).load(ProgramSpec(launches, 1, 2))
    for _ in range(200):
        program.run(addresses(x), addresses(y, z))
        assert np.array_equal(z, rotated(x, 12))


def test_no_launches(runtime: Runtime) -> None:
    runtime.load(ProgramSpec((), 0, 0)).run([], [])


def test_args_are_words(runtime: Runtime) -> None:
    seen, counts = np.zeros(1, np.int64), np.zeros(1, np.int64)
    for word, want in ((-5, -4), (2**64 - 5, -4), (2**62, 2**62 + 1)):
        spec = ProgramSpec((Launch(REPORT, (word,), parallel=False),), 0, 2)
        runtime.load(spec).run([], addresses(seen, counts))
        assert seen[0] == want


def test_many_slots(runtime: Runtime) -> None:
    n = 5000
    spec = ProgramSpec((Launch(binary("fadd"), (1,)),), n - 1, 1)
    a, b, c = (np.full(1, x, np.float32) for x in (1.0, 2.0, 0.0))
    runtime.load(spec).call(*addresses(a, b, c), *range(n - 3))
    assert c[0] == 3


@pytest.mark.parametrize("threads", [1, 3])
def test_the_arena_is_aligned_and_kept(runtime: Runtime, threads: int) -> None:
    where = np.zeros(1, np.int64)
    mine = runtime.with_threads(threads)
    seen = []
    for shared, each in ((1_000_000, 0), (100, 64), (0, 1), (1_000_000, 64), (999_000, 200)):
        size = shared + threads * each
        program = mine.load(ProgramSpec((Launch(ARENA, (size,), parallel=False),), 0, 1, shared, each))
        program.run([], addresses(where))
        assert where[0] % 64 == 0
        assert where[0] != 0
        seen.append(int(where[0]))
    assert seen[0] == seen[1] == seen[2], "a smaller program takes the arena that is there"


def test_without_an_arena_its_slot_is_zero(runtime: Runtime) -> None:
    where = np.ones(1, np.int64)
    runtime.load(ProgramSpec((Launch(ARENA, (0,), parallel=False),), 0, 1)).run([], addresses(where))
    assert where[0] == 0


def test_an_arena_that_cannot_be_had(runtime: Runtime) -> None:
    for parallel in (True, False):
        spec = ProgramSpec((Launch(ARENA, (1,), parallel=False),), 0, 1, arena_bytes=2**62, parallel=parallel)
        with pytest.raises(MemoryError):
            runtime.load(spec).run([], [0])
    test_threads_and_serial_launches(runtime)  # the pool is free again


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.run([1, 2], []), "the program takes 3 addresses, 2 given"),
        (lambda p: p.call(1, 2, 3, 4), "the program takes 3 addresses, 4 given"),
        (lambda p: p.call(1, 2, "3"), "integer"),
        (lambda p: p.call(1, 2, None), "integer"),
    ],
)
def test_wrong_addresses(runtime: Runtime, call: Callable[..., None], message: str) -> None:
    program = runtime.load(ProgramSpec((Launch(binary("fadd"), (0,)),), 2, 1))
    with pytest.raises(TypeError, match=message):
        call(program)
    with pytest.raises(OverflowError):
        program.call(1, 2, 2**70)


def test_the_function_keeps_what_it_needs(runtime: Runtime) -> None:
    a, b = np.ones((2, 10), np.float32)
    c = np.zeros(10, np.float32)
    call = runtime.with_threads(2).load(ProgramSpec((Launch(binary("fadd"), (10,)),), 2, 1)).call
    call(*addresses(a, b, c))
    assert c.tolist() == [2.0] * 10


def test_kernels_of_one_name_do_not_collide(runtime: Runtime) -> None:
    other = KernelSource("fadd", binary("fsub").text.replace("@fsub", "@fadd"))
    a, b = np.float32([[5], [3]])
    sums, differences = np.zeros(1, np.float32), np.zeros(1, np.float32)
    add = runtime.load(ProgramSpec((Launch(binary("fadd"), (1,)),), 2, 1))
    subtract = runtime.load(ProgramSpec((Launch(other, (1,)),), 2, 1))
    add.run(addresses(a, b), addresses(sums))
    subtract.run(addresses(a, b), addresses(differences))
    assert (sums[0], differences[0]) == (8, 2)


def test_kernels_of_one_name_or_one_text_in_one_program(runtime: Runtime) -> None:
    add, subtract = binary("fadd"), KernelSource("fadd", binary("fsub").text.replace("@fsub", "@fadd"))
    both = add.text + binary("fmul").text
    a, b, c = np.float32([[5], [3], [0]])
    kernels = [add, subtract, KernelSource("fadd", both), KernelSource("fmul", both)]
    runtime.load(ProgramSpec(tuple(Launch(kernel, (1,)) for kernel in kernels), 2, 1))
    for kernel, want in zip(kernels, [8, 2, 8, 15], strict=True):
        runtime.load(ProgramSpec((Launch(kernel, (1,)),), 2, 1)).run(addresses(a, b), addresses(c))
        assert c[0] == want


BAD_KERNELS = [
    ("define void @bad(", "kernel bad does not parse"),
    ("define void @other() { ret void }", "kernel bad does not link"),
    (
        "declare float @expf(float)\ndefine void @bad() { %x = call float @expf(float 1.0)\n ret void }",
        "kernel bad calls expf",
    ),
    ("define i32 @bad() { ret void }", "kernel bad"),
    ("define void @bad(float %x) {\n %y = fadd fast float %x, %x\n ret void }", "line 2.*may change the bits"),
]


@pytest.mark.parametrize(("text", "message"), BAD_KERNELS)
def test_a_bad_kernel_is_named(runtime: Runtime, text: str, message: str) -> None:
    spec = ProgramSpec((Launch(binary("fadd"), (1,)), Launch(KernelSource("bad", text), ())), 2, 1)
    with pytest.raises(KernelError, match=message) as caught:
        runtime.load(spec)
    assert "bad" in str(caught.value)


@pytest.mark.parametrize("level", host_levels())
def test_every_level_of_this_machine(level: str) -> None:
    runtime = Runtime(RuntimeOptions(threads=2, level=level))
    assert runtime.target.level == level
    test_every_element_is_done_by_one_thread(runtime, 2, 1000)


def test_an_unknown_level() -> None:
    with pytest.raises(UnsupportedLevelError, match="unknown CPU level 'pentium'; known levels: x86-64-v4"):
        Runtime(RuntimeOptions(level="pentium"))


def test_threads_must_be_positive() -> None:
    with pytest.raises(ValueError, match="threads must be at least 1, not 0"):
        RuntimeOptions(threads=0)
