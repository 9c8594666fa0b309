/* Runs recorded programs: reads a job file, calls the kernels on one thread, writes the outputs' bytes.
 *
 *   job     := n_programs program*
 *   program := n_slots n_launches slot* launch*
 *   slot    := kind size [bytes, padded to 8]     kind 0: input, 1: output, 2: arena, 3 + s: the memory of slot s
 *   launch  := kernel n_args args
 *
 * All numbers are 64-bit little-endian. `kernels` is generated.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*kernel)(int64_t *, const int64_t *, int64_t, int64_t);
extern const kernel kernels[];

static FILE *job;

static int64_t number(void) {
  int64_t v;
  if (fread(&v, 8, 1, job) != 1) exit(3);
  return v;
}

static int64_t memory(int64_t size) {
  char *p = malloc(size + 128);
  if (!p) exit(4);
  memset(p, 0, size + 128);
  return ((int64_t)(intptr_t)p + 63) & ~(int64_t)63;
}

static void run_program(FILE *out) {
  int64_t n_slots = number(), n_launches = number();
  int64_t *slots = calloc(n_slots + 1, 8), *kinds = calloc(n_slots + 1, 8), *sizes = calloc(n_slots + 1, 8);
  for (int64_t s = 0; s < n_slots; s++) {
    kinds[s] = number();
    sizes[s] = number();
    slots[s] = kinds[s] >= 3 ? slots[kinds[s] - 3] : memory(sizes[s]);
    if (kinds[s] == 0 && sizes[s] && fread((void *)(intptr_t)slots[s], (sizes[s] + 7) / 8 * 8, 1, job) != 1) exit(3);
  }
  for (int64_t l = 0; l < n_launches; l++) {
    int64_t k = number(), n = number();
    int64_t *args = calloc(n + 1, 8);
    for (int64_t i = 0; i < n; i++) args[i] = number();
    kernels[k](slots, args, 0, 1);
    free(args);
  }
  for (int64_t s = 0; s < n_slots; s++)
    if (kinds[s] == 1 || kinds[s] >= 3) fwrite((void *)(intptr_t)slots[s], 1, sizes[s], out);
}

int main(int argc, char **argv) {
  if (argc != 3 || !(job = fopen(argv[1], "rb"))) return 2;
  FILE *out = fopen(argv[2], "wb");
  if (!out) return 2;
  for (int64_t n = number(); n > 0; n--) run_program(out);
  return fclose(out) != 0;
}
