/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_check: two MPI processes exchange random bytes and add up vectors, and compare every byte and every sum with what
 * each can compute by itself. Built against the guests' OpenMPI (tools/lib/applications.sh).
 *
 * Prints one line for each kind of test; exit status 0 if all was right.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST ((size_t)4 << 20)
#define CANARY 0xa5

static int rank;
static int wrong;

/* What `sender` sends in exchange `number`: a xorshift* sequence from a seed that both know. */
static void fill(unsigned char* bytes, size_t size, int sender, unsigned number) {
  uint64_t state = 0x9e3779b97f4a7c15u ^ ((uint64_t)number << 8) ^ (uint64_t)(sender + 1);
  for (size_t i = 0; i < size; ++i) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    bytes[i] = (unsigned char)((state * 0x2545f4914f6cdd1du) >> 56);
  }
}

static void* allocate(size_t size) {
  void* memory = malloc(size);
  if (memory == NULL) {
    fprintf(stderr, "mpi_check: no memory for %zu bytes\n", size);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  return memory;
}

static void differs(const char* what, size_t size) {
  ++wrong;
  fprintf(stderr, "mpi_check: process %d: %s of %zu differs\n", rank, what, size);
}

static void ping_pong(void) {
  static const size_t sizes[] = {0, 1, 8, 63, 1024, 4097, 8192, 65536, 1000003, MOST};
  unsigned char* mine = allocate(MOST);
  unsigned char* received = allocate(MOST + 1);
  unsigned char* expected = allocate(MOST);
  unsigned exchanges = 0;
  for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); ++s) {
    for (int round = 0; round < 4; ++round, ++exchanges) {
      const size_t size = sizes[s];
      fill(mine, size, rank, exchanges);
      fill(expected, size, 1 - rank, exchanges);
      memset(received, CANARY, size + 1);
      MPI_Status status;
      if (rank == 0) {
        MPI_Send(mine, (int)size, MPI_BYTE, 1, (int)exchanges, MPI_COMM_WORLD);
      }
      MPI_Recv(received, (int)size, MPI_BYTE, 1 - rank, (int)exchanges, MPI_COMM_WORLD, &status);
      if (rank == 1) {
        MPI_Send(mine, (int)size, MPI_BYTE, 0, (int)exchanges, MPI_COMM_WORLD);
      }
      int count = -1;
      MPI_Get_count(&status, MPI_BYTE, &count);
      if (count != (int)size || memcmp(received, expected, size) != 0 || received[size] != CANARY) {
        differs("a message", size);
      }
    }
  }
  if (rank == 0) {
    printf("mpi_check: ping-pong: %u exchanges up to %zu bytes\n", exchanges, MOST);
  }
  free(mine);
  free(received);
  free(expected);
}

/* Sums of small integers are exact in any order, in doubles too. */
static void allreduce(void) {
  static const int counts[] = {1, 7, 1024, 100003, 524288};
  const int most = 524288;
  int64_t* integers = allocate((size_t)most * sizeof(*integers));
  double* reals = allocate((size_t)most * sizeof(*reals));
  unsigned vectors = 0;
  for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); ++c) {
    const int count = counts[c];
    for (int i = 0; i < count; ++i) {
      integers[i] = (int64_t)i * 3 + rank * 1000003;
      reals[i] = i * 0.5 - rank * 7;
    }
    MPI_Allreduce(MPI_IN_PLACE, integers, count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, reals, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    int bad = 0;
    for (int i = 0; i < count; ++i) {
      bad += integers[i] != (int64_t)i * 6 + 1000003 || reals[i] != i - 7.0;
    }
    if (bad != 0) {
      differs("an allreduce", (size_t)count);
    }
    vectors += 2;
  }
  if (rank == 0) {
    printf("mpi_check: allreduce: %u vectors up to %d elements\n", vectors, most);
  }
  free(integers);
  free(reals);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != 2) {
    fprintf(stderr, "mpi_check: %d processes: start two (mpirun -n 2)\n", size);
    MPI_Finalize();
    return 2;
  }
  char name[2][MPI_MAX_PROCESSOR_NAME] = {{0}, {0}};
  int length = 0;
  MPI_Get_processor_name(name[rank], &length);
  MPI_Bcast(name[0], MPI_MAX_PROCESSOR_NAME, MPI_CHAR, 0, MPI_COMM_WORLD);
  MPI_Bcast(name[1], MPI_MAX_PROCESSOR_NAME, MPI_CHAR, 1, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("mpi_check: on %s and %s\n", name[0], name[1]);
  }
  ping_pong();
  allreduce();
  int all_wrong = 0;
  MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("mpi_check: %s\n", all_wrong == 0 ? "all right" : "differences");
  }
  MPI_Finalize();
  return all_wrong == 0 ? 0 : 1;
}
