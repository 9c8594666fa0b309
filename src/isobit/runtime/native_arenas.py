"""The part of the native driver that keeps arenas between calls (LLVM IR text)."""

from __future__ import annotations

# Arenas are kept between calls and shared by all programs of a pool: take the smallest that is large enough. When none
# is, a smaller one makes room for the new one, so there are never more than calls at one time.
ARENAS = """
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
