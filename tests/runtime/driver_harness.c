/* The native driver without Python: three pthreads run programs; see test_runtime_aarch64.py. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void isobit_pool_init(char *pool);
extern void isobit_pool_stop(char *pool);
extern void isobit_worker(char *pool, int64_t tid);
extern int32_t isobit_execute(int64_t *program, int64_t *slots);
extern void rotate(int64_t *, int64_t *, int64_t, int64_t);
extern void fdiv(int64_t *, int64_t *, int64_t, int64_t);

enum { N = 97, THREADS = 3, READY = 1, PARALLEL_AND_BARRIER = 3 };
static char pool[1024] __attribute__((aligned(128)));

static void *work(void *tid) {
  isobit_worker(pool, (intptr_t)tid);
  return NULL;
}

static uint64_t get_fpcr(void) {
  uint64_t v;
  __asm__ volatile("mrs %0, fpcr" : "=r"(v));
  return v;
}

static void set_fpcr(uint64_t v) { __asm__ volatile("msr fpcr, %0" ::"r"(v)); }

static int barriers(void) {
  static int64_t x[N], y[N], z[N];
  int64_t hops[][3] = {{N, 0, 1}, {N, 1, 2}, {N, 2, 1}, {N, 1, 2}};
  int64_t table[4][3], slots[4] = {(intptr_t)x, (intptr_t)y, (intptr_t)z, 7};
  for (int i = 0; i < N; i++) x[i] = i * i;
  for (int l = 0; l < 4; l++) {
    table[l][0] = (intptr_t)rotate;
    table[l][1] = (intptr_t)hops[l];
    table[l][2] = PARALLEL_AND_BARRIER;
  }
  int64_t program[7] = {(intptr_t)pool, (intptr_t)table, 4, 3, 1000, 10, 1};
  for (int call = 0; call < 300; call++) {
    memset(z, 0, sizeof z);
    if (isobit_execute(program, slots)) return 1;
    for (int i = 0; i < N; i++)
      if (z[i] != x[(i + 4) % N] + 4) return 2;
    if (slots[3] == 0 || slots[3] % 64 != 0) return 3;
  }
  return 0;
}

static int environment(void) {
  static float a[N], b[N], want[N], got[N], spoilt[N];
  int64_t args[1] = {N}, table[3] = {(intptr_t)fdiv, (intptr_t)args, PARALLEL_AND_BARRIER};
  int64_t slots[4] = {(intptr_t)a, (intptr_t)b, (intptr_t)want, 0};
  int64_t program[7] = {(intptr_t)pool, (intptr_t)table, 1, 3, 0, 0, 1};
  for (int i = 0; i < N; i++) a[i] = i < 50 ? 1e-40f * i : i, b[i] = 3;
  isobit_execute(program, slots);
  uint64_t mode = 3 << 22 | 1 << 24; /* to zero, flush */
  slots[2] = (intptr_t)got;
  set_fpcr(mode);
  isobit_execute(program, slots);
  uint64_t kept = get_fpcr();
  slots[2] = (intptr_t)spoilt;
  fdiv(slots, args, 0, 1);
  set_fpcr(0);
  if (kept != mode) return 4;
  if (memcmp(got, want, sizeof got)) return 5;
  return memcmp(spoilt, want, sizeof got) ? 0 : 6;
}

int main(void) {
  int32_t threads = THREADS, state = READY, spin = 20;
  pthread_t workers[THREADS - 1];
  memcpy(pool + 4, &threads, 4);
  memcpy(pool + 8, &state, 4);
  memcpy(pool + 12, &spin, 4);
  isobit_pool_init(pool);
  for (intptr_t t = 1; t < THREADS; t++) pthread_create(&workers[t - 1], NULL, work, (void *)t);
  int code = barriers();
  if (!code) code = environment();
  isobit_pool_stop(pool);
  for (int t = 0; t < THREADS - 1; t++) pthread_join(workers[t], NULL);
  return code;
}
