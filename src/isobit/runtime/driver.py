"""The native driver, as LLVM IR text: runs a program's launches on all threads and needs no compiler but LLVM.

Memory that Python sets up and the driver reads (byte offsets; every field is 8 bytes unless said otherwise):

    program  0 pool   8 launches   16 number of launches   24 number of slots without the arena
             32 arena bytes, shared part   40 arena bytes per thread   48 parallel (0 or 1)
    launch   0 function   8 args   16 flags: PARALLEL, BARRIER          (24 bytes each, one after another)
    pool     0 busy (i32)   4 threads (i32)   8 state (i32)   12 spin (i32)   16 job: program   24 job: slots
             64 arena lock (i32)   128 event go   384 event barrier   640 arrived at the barrier (i32)
             768 kept arenas: 16 pairs of address and bytes
    event    0 value (i32)   4 sleepers (i32)   64 mutex   128 condition

A call publishes a job and bumps `go`; everybody walks the launch list with a barrier after a launch where its flag says
so; the barrier after the last launch ends the call. An event is a counter that waiters watch: they spin, then yield the
core, then sleep on the condition. Results cannot depend on the number of threads, so a call that finds the pool busy
runs alone on its own thread instead of waiting.

Kernels always run in the environment of ARITHMETIC.md §1, whatever the process has set: `isobit.walk` is not inlined
into `isobit.guarded`, so no arithmetic can move across the switch.
"""

from __future__ import annotations

from isobit.codegen.target import Target, UnsupportedLevelError

POOL_BYTES = 1024
PROGRAM_BYTES = 56
LAUNCH_BYTES = 24
PARALLEL, BARRIER = 1, 2
IDLE, READY, STOPPED = 0, 1, 2

SYMBOLS = ("isobit_pool_init", "isobit_pool_stop", "isobit_worker", "isobit_execute")
"""What the driver defines: ``void pool_init(pool)``, ``void pool_stop(pool)``, ``void worker(pool, i64 tid)`` (returns
after the pool was stopped), ``i32 execute(program, slots)`` (0, or 1 if there is no memory for the arena)."""

IMPORTS = (
    "pthread_mutex_init", "pthread_mutex_lock", "pthread_mutex_unlock",
    "pthread_cond_init", "pthread_cond_wait", "pthread_cond_broadcast",
    "sched_yield", "posix_memalign", "free",
)  # fmt: skip
"""What the driver needs from the C library."""


def driver_text(target: Target) -> str:
    """The driver for one target. Raises UnsupportedLevelError for an architecture whose control register is unknown."""
    if target.arch not in _ARCH:
        raise UnsupportedLevelError(f"the native driver knows {', '.join(_ARCH)}, not {target.arch}")
    return _DECLARATIONS + _ARCH[target.arch] + _EVENTS + _WALK + _POOL + _ARENAS + _EXECUTE


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

# MXCSR 0x1F80: round to nearest, all exceptions masked, neither flush-to-zero nor denormals-are-zero.
_X86 = """
declare void @llvm.x86.sse2.pause()
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)

define internal void @isobit.relax() alwaysinline nounwind {
  call void @llvm.x86.sse2.pause()
  ret void
}

define internal void @isobit.guarded(ptr %program, ptr %slots, i64 %tid, i64 %n) noinline nounwind {
  %caller = alloca i32
  %ours = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %caller)
  store i32 8064, ptr %ours
  call void @llvm.x86.sse.ldmxcsr(ptr %ours)
  call void @isobit.walk(ptr %program, ptr %slots, i64 %tid, i64 %n)
  call void @llvm.x86.sse.ldmxcsr(ptr %caller)
  ret void
}
"""

# FPCR 0: round to nearest, no traps, no flush-to-zero (FZ, FZ16), no default NaN.
_ARM = """
declare void @llvm.aarch64.hint(i32)
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)

define internal void @isobit.relax() alwaysinline nounwind {
  call void @llvm.aarch64.hint(i32 1)
  ret void
}

define internal void @isobit.guarded(ptr %program, ptr %slots, i64 %tid, i64 %n) noinline nounwind {
  %caller = call i64 @llvm.aarch64.get.fpcr()
  call void @llvm.aarch64.set.fpcr(i64 0)
  call void @isobit.walk(ptr %program, ptr %slots, i64 %tid, i64 %n)
  call void @llvm.aarch64.set.fpcr(i64 %caller)
  ret void
}
"""

_ARCH = {"x86_64": _X86, "aarch64": _ARM}

# A sleeper counts itself, then looks at the value; a signal bumps the value, then looks for sleepers. Both pairs are
# sequentially consistent, so one of the two always sees the other.
_EVENTS = """
define internal i1 @isobit.changed(ptr %event, i32 %old) alwaysinline nounwind {
  %now = load atomic i32, ptr %event seq_cst, align 4
  %changed = icmp ne i32 %now, %old
  ret i1 %changed
}

define internal void @isobit.wait(ptr %event, i32 %old, i32 %spin) noinline nounwind {
entry:
  br label %spinning
spinning:
  %i = phi i32 [ 0, %entry ], [ %i2, %relax ]
  %seen = call i1 @isobit.changed(ptr %event, i32 %old)
  br i1 %seen, label %done, label %relax
relax:
  call void @isobit.relax()
  %i2 = add i32 %i, 1
  %more = icmp slt i32 %i2, %spin
  br i1 %more, label %spinning, label %yielding
yielding:
  %j = phi i32 [ 0, %relax ], [ %j2, %yield ]
  %seen2 = call i1 @isobit.changed(ptr %event, i32 %old)
  br i1 %seen2, label %done, label %yield
yield:
  %ignored = call i32 @sched_yield()
  %j2 = add i32 %j, 1
  %more2 = icmp slt i32 %j2, 64
  br i1 %more2, label %yielding, label %sleep
sleep:
  call void @isobit.sleep(ptr %event, i32 %old)
  br label %done
done:
  ret void
}

define internal void @isobit.sleep(ptr %event, i32 %old) noinline nounwind {
entry:
  %sleepers = getelementptr i8, ptr %event, i64 4
  %mutex = getelementptr i8, ptr %event, i64 64
  %condition = getelementptr i8, ptr %event, i64 128
  %a = call i32 @pthread_mutex_lock(ptr %mutex)
  %b = atomicrmw add ptr %sleepers, i32 1 seq_cst
  br label %check
check:
  %seen = call i1 @isobit.changed(ptr %event, i32 %old)
  br i1 %seen, label %awake, label %again
again:
  %c = call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %check
awake:
  %d = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  %e = call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}

define internal void @isobit.signal(ptr %event) noinline nounwind {
  %sleepers = getelementptr i8, ptr %event, i64 4
  %old = atomicrmw add ptr %event, i32 1 seq_cst
  %n = load atomic i32, ptr %sleepers seq_cst, align 4
  %none = icmp eq i32 %n, 0
  br i1 %none, label %done, label %wake
wake:
  %mutex = getelementptr i8, ptr %event, i64 64
  %condition = getelementptr i8, ptr %event, i64 128
  %a = call i32 @pthread_mutex_lock(ptr %mutex)
  %b = call i32 @pthread_cond_broadcast(ptr %condition)
  %c = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %done
done:
  ret void
}

define internal void @isobit.barrier(ptr %pool, i64 %n) noinline nounwind {
  %event = getelementptr i8, ptr %pool, i64 384
  %arrived = getelementptr i8, ptr %pool, i64 640
  %epoch = load atomic i32, ptr %event seq_cst, align 4
  %before = atomicrmw add ptr %arrived, i32 1 seq_cst
  %me = add i32 %before, 1
  %all = trunc i64 %n to i32
  %last = icmp eq i32 %me, %all
  br i1 %last, label %open, label %wait
open:
  store atomic i32 0, ptr %arrived seq_cst, align 4
  call void @isobit.signal(ptr %event)
  ret void
wait:
  %spinp = getelementptr i8, ptr %pool, i64 12
  %spin = load i32, ptr %spinp
  call void @isobit.wait(ptr %event, i32 %epoch, i32 %spin)
  ret void
}
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

# A worker cannot miss a job: the job's barriers wait for it. So `go` moves by one between its looks, unless stopped.
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
  br label %try
try:
  %got = call i1 @isobit.trylock(ptr %pool)
  br i1 %got, label %stop, label %busy
busy:
  %ignored = call i32 @sched_yield()
  br label %try
stop:
  store atomic i32 2, ptr %statep seq_cst, align 4
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
  %stopped = icmp eq i32 %state, 2
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

# Arenas are kept between calls and shared by all programs of a pool: take the smallest that is large enough. When none
# is, a smaller one makes room for the new one, so there are never more than calls at one time.
_ARENAS = """
define internal i1 @isobit.trylock(ptr %lock) alwaysinline nounwind {
  %old = atomicrmw xchg ptr %lock, i32 1 acquire
  %got = icmp eq i32 %old, 0
  ret i1 %got
}

define internal void @isobit.lock(ptr %lock) noinline nounwind {
entry:
  br label %try
try:
  %got = call i1 @isobit.trylock(ptr %lock)
  br i1 %got, label %done, label %yield
yield:
  %ignored = call i32 @sched_yield()
  br label %try
done:
  ret void
}

define internal ptr @isobit.take_kept(ptr %pool, i64 %bytes, ptr %got_bytes) nounwind {
entry:
  %lock = getelementptr i8, ptr %pool, i64 64
  %kept = getelementptr i8, ptr %pool, i64 768
  call void @isobit.lock(ptr %lock)
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %i2, %look ]
  %best = phi ptr [ null, %entry ], [ %best2, %look ]
  %size = phi i64 [ -1, %entry ], [ %size2, %look ]
  %entryp = getelementptr [16 x i8], ptr %kept, i64 %i
  %entry_sizep = getelementptr i8, ptr %entryp, i64 8
  %entry_size = load i64, ptr %entry_sizep
  %large = icmp uge i64 %entry_size, %bytes
  %smaller = icmp ult i64 %entry_size, %size
  %better = and i1 %large, %smaller
  %best2 = select i1 %better, ptr %entryp, ptr %best
  %size2 = select i1 %better, i64 %entry_size, i64 %size
  %i2 = add i64 %i, 1
  %more = icmp ult i64 %i2, 16
  br i1 %more, label %look, label %looked
looked:
  %none = icmp eq ptr %best2, null
  br i1 %none, label %out, label %found
found:
  %arena = load ptr, ptr %best2
  store ptr null, ptr %best2
  %best_sizep = getelementptr i8, ptr %best2, i64 8
  store i64 0, ptr %best_sizep
  store i64 %size2, ptr %got_bytes
  br label %out
out:
  %result = phi ptr [ null, %looked ], [ %arena, %found ]
  store atomic i32 0, ptr %lock release, align 4
  ret ptr %result
}

define internal ptr @isobit.take_arena(ptr %pool, i64 %bytes, ptr %got_bytes) noinline nounwind {
entry:
  %fresh = alloca ptr
  %kept = call ptr @isobit.take_kept(ptr %pool, i64 %bytes, ptr %got_bytes)
  %miss = icmp eq ptr %kept, null
  br i1 %miss, label %allocate, label %reuse
reuse:
  ret ptr %kept
allocate:
  %small = call ptr @isobit.take_kept(ptr %pool, i64 1, ptr %got_bytes)
  call void @free(ptr %small)
  store i64 %bytes, ptr %got_bytes
  %error = call i32 @posix_memalign(ptr %fresh, i64 64, i64 %bytes)
  %failed = icmp ne i32 %error, 0
  %arena = load ptr, ptr %fresh
  %result = select i1 %failed, ptr null, ptr %arena
  ret ptr %result
}

define internal void @isobit.give_arena(ptr %pool, ptr %arena, i64 %bytes) noinline nounwind {
entry:
  %lock = getelementptr i8, ptr %pool, i64 64
  %kept = getelementptr i8, ptr %pool, i64 768
  call void @isobit.lock(ptr %lock)
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %i2, %look ]
  %least = phi ptr [ null, %entry ], [ %least2, %look ]
  %size = phi i64 [ -1, %entry ], [ %size2, %look ]
  %entryp = getelementptr [16 x i8], ptr %kept, i64 %i
  %entry_sizep = getelementptr i8, ptr %entryp, i64 8
  %entry_size = load i64, ptr %entry_sizep
  %smaller = icmp ult i64 %entry_size, %size
  %least2 = select i1 %smaller, ptr %entryp, ptr %least
  %size2 = select i1 %smaller, i64 %entry_size, i64 %size
  %i2 = add i64 %i, 1
  %more = icmp ult i64 %i2, 16
  br i1 %more, label %look, label %looked
looked:
  %old = load ptr, ptr %least2
  store ptr %arena, ptr %least2
  %least_sizep = getelementptr i8, ptr %least2, i64 8
  store i64 %bytes, ptr %least_sizep
  store atomic i32 0, ptr %lock release, align 4
  call void @free(ptr %old)
  ret void
}
"""

_EXECUTE = """
define internal i64 @isobit.claim(ptr %program) noinline nounwind {
entry:
  %pool = load ptr, ptr %program
  %parallelp = getelementptr i8, ptr %program, i64 48
  %parallel = load i64, ptr %parallelp
  %statep = getelementptr i8, ptr %pool, i64 8
  %state = load atomic i32, ptr %statep seq_cst, align 4
  %ready = icmp eq i32 %state, 1
  %wanted = icmp ne i64 %parallel, 0
  %both = and i1 %ready, %wanted
  br i1 %both, label %try, label %alone
try:
  %got = call i1 @isobit.trylock(ptr %pool)
  br i1 %got, label %check, label %alone
check:
  %state2 = load atomic i32, ptr %statep seq_cst, align 4
  %still = icmp eq i32 %state2, 1
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
