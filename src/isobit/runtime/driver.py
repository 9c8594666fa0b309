"""The native driver, as LLVM IR text: runs a program's launches on all threads and needs no compiler but LLVM.

Programs, launches and the pool lie in memory as runtime.abi says; the driver's own part of the pool is

    pool     16 job: program   24 job: slots   64 arena lock (i32)   128 event go   384 event barrier
             640 arrived at the barrier (i32)   768 kept arenas: 16 pairs of address and bytes
    event    0 value (i32)   4 sleepers (i32)   64 mutex   128 condition

A call publishes a job and bumps `go`; everybody walks the launch list with a barrier after a launch where its flag
says so; the barrier after the last launch, which must have the flag, ends the call. An event is a counter that
waiters watch: they spin, then yield the core, then sleep on the condition. Results cannot depend on the number of
threads, so a call that finds the pool busy runs alone on its own thread instead of waiting.

Kernels always run in the environment of ARITHMETIC.md §1, whatever the process has set: `isobit.walk` is not inlined
into `isobit.guarded`, so no arithmetic can move across the switch.
"""

from __future__ import annotations

from isobit.codegen.target import Target, UnsupportedLevelError
from isobit.runtime.native_arenas import ARENAS
from isobit.runtime.native_threads import EVENTS, GUARDS

SYMBOLS = ("isobit_pool_init", "isobit_pool_stop", "isobit_worker", "isobit_execute", "isobit_relax")
"""What the driver defines: ``void pool_init(pool)``, ``void pool_stop(pool)``, ``void worker(pool, i64 tid)`` (returns
after the pool was stopped), ``i32 execute(program, slots)`` (0, or 1 if there is no memory for the arena) and
``void relax(i64 n)``, n turns of a waiter's spin loop, to find out how long one takes on this CPU."""

IMPORTS = (
    "pthread_mutex_init", "pthread_mutex_lock", "pthread_mutex_unlock",
    "pthread_cond_init", "pthread_cond_wait", "pthread_cond_broadcast",
    "sched_yield", "posix_memalign", "free",
)  # fmt: skip
"""What the driver needs from the C library."""


def driver_text(target: Target) -> str:
    """The driver for one target. Raises UnsupportedLevelError for an architecture whose control register is unknown."""
    if target.arch not in GUARDS:
        raise UnsupportedLevelError(f"the native driver knows {', '.join(GUARDS)}, not {target.arch}")
    return _DECLARATIONS + GUARDS[target.arch] + EVENTS + _WALK + _POOL + ARENAS + _EXECUTE


_DECLARATIONS = """
declare i32 @pthread_mutex_init(ptr, ptr) nounwind
declare i32 @pthread_mutex_lock(ptr) nounwind
declare i32 @pthread_mutex_unlock(ptr) nounwind
declare i32 @pthread_cond_init(ptr, ptr) nounwind
declare i32 @pthread_cond_wait(ptr, ptr) nounwind
declare i32 @pthread_cond_broadcast(ptr) nounwind
declare i32 @sched_yield() nounwind
declare i32 @posix_memalign(ptr, i64, i64) nounwind
declare void @free(ptr) nounwind
"""

# A serial launch sees nthreads = 1: it has all the work to do.
_WALK = """
define internal void @isobit.walk(ptr %program, ptr %slots, i64 %tid, i64 %n) noinline nounwind {
entry:
  %pool = load ptr, ptr %program
  %tablep = getelementptr i8, ptr %program, i64 8
  %table = load ptr, ptr %tablep
  %countp = getelementptr i8, ptr %program, i64 16
  %count = load i64, ptr %countp
  %end = getelementptr [24 x i8], ptr %table, i64 %count
  %alone = icmp eq i64 %n, 1
  %empty = icmp eq i64 %count, 0
  br i1 %empty, label %done, label %launch
launch:
  %at = phi ptr [ %table, %entry ], [ %next, %after ]
  %flagsp = getelementptr i8, ptr %at, i64 16
  %flags = load i64, ptr %flagsp
  %par = trunc i64 %flags to i1
  %width = select i1 %par, i64 %n, i64 1
  %mine = icmp ult i64 %tid, %width
  br i1 %mine, label %run, label %meet
run:
  %function = load ptr, ptr %at
  %argsp = getelementptr i8, ptr %at, i64 8
  %args = load ptr, ptr %argsp
  call void %function(ptr %slots, ptr %args, i64 %tid, i64 %width)
  br label %meet
meet:
  %bit = and i64 %flags, 2
  %free = icmp eq i64 %bit, 0
  %skip = or i1 %free, %alone
  br i1 %skip, label %after, label %barrier
barrier:
  call void @isobit.barrier(ptr %pool, i64 %n)
  br label %after
after:
  %next = getelementptr i8, ptr %at, i64 24
  %finished = icmp eq ptr %next, %end
  br i1 %finished, label %done, label %launch
done:
  ret void
}
"""

# A worker cannot miss a job: the barrier after the last launch waits for it. So `go` moves by one between its looks,
# unless stopped. A program without launches has no such barrier and is never published: its memory may be gone by the
# time that a worker looks. Stopping closes the pool to new jobs first, then waits for the one that runs.
_POOL = """
define internal void @isobit.event_init(ptr %event) nounwind {
  %mutex = getelementptr i8, ptr %event, i64 64
  %condition = getelementptr i8, ptr %event, i64 128
  %a = call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  %b = call i32 @pthread_cond_init(ptr %condition, ptr null)
  ret void
}

define void @isobit_pool_init(ptr %pool) nounwind {
  %go = getelementptr i8, ptr %pool, i64 128
  %barrier = getelementptr i8, ptr %pool, i64 384
  call void @isobit.event_init(ptr %go)
  call void @isobit.event_init(ptr %barrier)
  ret void
}

define void @isobit_pool_stop(ptr %pool) nounwind {
entry:
  %statep = getelementptr i8, ptr %pool, i64 8
  %go = getelementptr i8, ptr %pool, i64 128
  store atomic i32 2, ptr %statep seq_cst, align 4
  call void @isobit.lock(ptr %pool)
  store atomic i32 3, ptr %statep seq_cst, align 4
  call void @isobit.signal(ptr %go)
  store atomic i32 0, ptr %pool release, align 4
  ret void
}

define void @isobit_worker(ptr %pool, i64 %tid) nounwind {
entry:
  %threadsp = getelementptr i8, ptr %pool, i64 4
  %statep = getelementptr i8, ptr %pool, i64 8
  %spinp = getelementptr i8, ptr %pool, i64 12
  %programp = getelementptr i8, ptr %pool, i64 16
  %slotsp = getelementptr i8, ptr %pool, i64 24
  %go = getelementptr i8, ptr %pool, i64 128
  br label %idle
idle:
  %seen = phi i32 [ 0, %entry ], [ %now, %job ]
  %spin = load i32, ptr %spinp
  call void @isobit.wait(ptr %go, i32 %seen, i32 %spin)
  %now = load atomic i32, ptr %go seq_cst, align 4
  %state = load atomic i32, ptr %statep seq_cst, align 4
  %stopped = icmp eq i32 %state, 3
  br i1 %stopped, label %done, label %job
job:
  %program = load ptr, ptr %programp
  %slots = load ptr, ptr %slotsp
  %threads = load i32, ptr %threadsp
  %n = zext i32 %threads to i64
  call void @isobit.guarded(ptr %program, ptr %slots, i64 %tid, i64 %n)
  br label %idle
done:
  ret void
}
"""

_EXECUTE = """
define void @isobit_relax(i64 %n) nounwind {
entry:
  %never = alloca i32
  store atomic i32 0, ptr %never seq_cst, align 4
  br label %turn
turn:
  %i = phi i64 [ 0, %entry ], [ %i2, %relax ]
  %seen = call i1 @isobit.changed(ptr %never, i32 0)
  br i1 %seen, label %done, label %relax
relax:
  call void @isobit.relax()
  %i2 = add i64 %i, 1
  %more = icmp ult i64 %i2, %n
  br i1 %more, label %turn, label %done
done:
  ret void
}

define internal i64 @isobit.claim(ptr %program) noinline nounwind {
entry:
  %pool = load ptr, ptr %program
  %parallelp = getelementptr i8, ptr %program, i64 48
  %parallel = load i64, ptr %parallelp
  %statep = getelementptr i8, ptr %pool, i64 8
  %state = load atomic i32, ptr %statep seq_cst, align 4
  %ready = icmp eq i32 %state, 1
  %wanted = icmp ne i64 %parallel, 0
  %countp = getelementptr i8, ptr %program, i64 16
  %count = load i64, ptr %countp
  %some = icmp ne i64 %count, 0
  %both = and i1 %ready, %wanted
  %all_three = and i1 %both, %some
  br i1 %all_three, label %try, label %alone
try:
  %got = call i1 @isobit.trylock(ptr %pool)
  br i1 %got, label %check, label %alone
check:
  %state2 = load atomic i32, ptr %statep seq_cst, align 4
  %still = icmp eq i32 %state2, 1 ; it may have been closed in between
  br i1 %still, label %all, label %stopped
all:
  %threadsp = getelementptr i8, ptr %pool, i64 4
  %threads = load i32, ptr %threadsp
  %n = zext i32 %threads to i64
  ret i64 %n
stopped:
  store atomic i32 0, ptr %pool release, align 4
  br label %alone
alone:
  ret i64 1
}

define internal void @isobit.run(ptr %program, ptr %slots, i64 %n) noinline nounwind {
entry:
  %pool = load ptr, ptr %program
  %alone = icmp eq i64 %n, 1
  br i1 %alone, label %walk, label %publish
publish:
  %programp = getelementptr i8, ptr %pool, i64 16
  %slotsp = getelementptr i8, ptr %pool, i64 24
  %go = getelementptr i8, ptr %pool, i64 128
  store ptr %program, ptr %programp
  store ptr %slots, ptr %slotsp
  call void @isobit.signal(ptr %go)
  br label %walk
walk:
  call void @isobit.guarded(ptr %program, ptr %slots, i64 0, i64 %n)
  br i1 %alone, label %done, label %unlock
unlock:
  store atomic i32 0, ptr %pool release, align 4
  br label %done
done:
  ret void
}

define i32 @isobit_execute(ptr %program, ptr %slots) nounwind {
entry:
  %got_bytes = alloca i64
  %pool = load ptr, ptr %program
  %n = call i64 @isobit.claim(ptr %program)
  %slotcountp = getelementptr i8, ptr %program, i64 24
  %slotcount = load i64, ptr %slotcountp
  %arenap = getelementptr i64, ptr %slots, i64 %slotcount
  %sharedp = getelementptr i8, ptr %program, i64 32
  %shared = load i64, ptr %sharedp
  %eachp = getelementptr i8, ptr %program, i64 40
  %each = load i64, ptr %eachp
  %all = mul i64 %each, %n
  %bytes = add i64 %shared, %all
  %bare = icmp eq i64 %bytes, 0
  br i1 %bare, label %without, label %with
without:
  store i64 0, ptr %arenap
  call void @isobit.run(ptr %program, ptr %slots, i64 %n)
  ret i32 0
with:
  %arena = call ptr @isobit.take_arena(ptr %pool, i64 %bytes, ptr %got_bytes)
  %none = icmp eq ptr %arena, null
  br i1 %none, label %fail, label %go
go:
  store ptr %arena, ptr %arenap
  call void @isobit.run(ptr %program, ptr %slots, i64 %n)
  %size = load i64, ptr %got_bytes
  call void @isobit.give_arena(ptr %pool, ptr %arena, i64 %size)
  ret i32 0
fail:
  %alone = icmp eq i64 %n, 1
  br i1 %alone, label %failed, label %unlock
unlock:
  store atomic i32 0, ptr %pool release, align 4
  br label %failed
failed:
  ret i32 1
}
"""
