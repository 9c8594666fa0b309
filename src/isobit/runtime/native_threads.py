"""The native driver's floating-point environment, and how its threads wait for each other (LLVM IR text)."""

from __future__ import annotations

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

GUARDS = {"x86_64": _X86, "aarch64": _ARM}

# A sleeper counts itself, then looks at the value; a signal bumps the value, then looks for sleepers. Both pairs are
# sequentially consistent, so one of the two always sees the other.
EVENTS = """
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
