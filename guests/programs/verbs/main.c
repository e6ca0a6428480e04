/* SPDX-License-Identifier: Apache-2.0
 *
 * orrery-guest-verbs: do RDMA operations move the right bytes to the right places, and none else?
 *
 * Both sides know the random schedule. In each batch they fill their regions with random bytes, the client posts
 * operations at once, each within a slot of its own, and then either side compares its whole region with what the
 * schedule makes of it in plain memory: payload, and the bytes around it as canaries.
 *
 * Uses libibverbs under its BSD licence.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../random.h"
#include "gpu_region.h"
#include "link.h"

enum {
  GUARD = 192,     /* bytes around a payload, at least */
  MOST_PIECES = 4, /* of a scatter list */
  MOST_OPERATIONS = 256,
  MOST_BYTES = 8 << 20,
  INLINE_BYTES = 64,
  LATE_US = 2000 /* longer than the RNR timer */
};

enum kind { SEND, SEND_IMMEDIATE, WRITE, WRITE_IMMEDIATE, READ, FETCH_ADD, COMPARE_SWAP, KINDS };
static const char* const kind_names[KINDS] = {"SEND", "SEND with immediate", "WRITE",         "WRITE with immediate",
                                              "READ", "fetch & add",         "compare & swap"};
static const enum ibv_wr_opcode opcodes[KINDS] = {
    IBV_WR_SEND,      IBV_WR_SEND_WITH_IMM,        IBV_WR_RDMA_WRITE,        IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP};
static const enum ibv_wc_opcode completions[KINDS] = {IBV_WC_SEND,       IBV_WC_SEND,      IBV_WC_RDMA_WRITE,
                                                      IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ, IBV_WC_FETCH_ADD,
                                                      IBV_WC_COMP_SWAP};

/* Bytes of a slot in the order in which a scatter list has them: from `at`, `length` of them, cut and rotated. */
struct pieces {
  uint32_t count;
  struct {
    size_t at;
    uint32_t length;
  } piece[MOST_PIECES];
};

struct operation {
  enum kind kind;
  bool inlined;
  uint32_t length;
  uint32_t immediate;
  struct pieces client, server; /* in the regions; the server's is one piece unless the operation is a SEND */
  uint64_t add_or_compare, swap;
};

static bool consumes_receive(enum kind kind) {
  return kind == SEND || kind == SEND_IMMEDIATE || kind == WRITE_IMMEDIATE;
}
static bool is_send(enum kind kind) {
  return kind == SEND || kind == SEND_IMMEDIATE;
}
static bool is_atomic(enum kind kind) {
  return kind == FETCH_ADD || kind == COMPARE_SWAP;
}

static uint64_t below(uint64_t* random, uint64_t limit) {
  return random_next(random) % limit;
}

/* Cuts `length` bytes at `at` into `count` pieces and begins with another than the first. */
static struct pieces cut(uint64_t* random, size_t at, uint32_t length, uint32_t count) {
  struct pieces cut = {.count = count < length ? count : 1};
  const uint32_t first = (uint32_t)below(random, cut.count);
  uint32_t left = length;
  for (uint32_t i = 0; i < cut.count; ++i) {
    const uint32_t others = cut.count - i - 1;
    const uint32_t bytes = others == 0 ? left : 1 + (uint32_t)below(random, left / (others + 1));
    cut.piece[(i + first) % cut.count].at = at;
    cut.piece[(i + first) % cut.count].length = bytes;
    at += bytes;
    left -= bytes;
  }
  return cut;
}

static size_t slot_bytes(const struct plan* plan) {
  return ((size_t)plan->max_bytes + 3 * GUARD + 63) / 64 * 64;
}

static void schedule(const struct plan* plan, uint64_t batch, const uint8_t* server, struct operation* operations) {
  uint64_t random = plan->seed ^ (batch << 20) ^ UINT64_C(0x5c5c5c);
  for (uint64_t i = 0; i < plan->operations; ++i) {
    struct operation* op = &operations[i];
    const size_t slot = i * slot_bytes(plan);
    op->kind = (enum kind)below(&random, KINDS);
    /* Small ones as often as large ones; now and then none at all. */
    const uint64_t most = UINT64_C(1) << below(&random, 24);
    op->length = (uint32_t)below(&random, (most < plan->max_bytes ? most : plan->max_bytes) + 1);
    op->length = is_atomic(op->kind) ? 8 : op->length;
    op->immediate = (uint32_t)random_next(&random);
    op->inlined = op->length <= INLINE_BYTES && op->kind <= WRITE_IMMEDIATE && below(&random, 2) == 0;
    const uint32_t count = is_atomic(op->kind) ? 1 : 1 + (uint32_t)below(&random, MOST_PIECES);
    op->client = cut(&random, slot + GUARD + (is_atomic(op->kind) ? 0 : below(&random, GUARD)), op->length, count);
    op->server = cut(&random, slot + GUARD + (is_atomic(op->kind) ? 0 : below(&random, GUARD)), op->length,
                     is_send(op->kind) ? 1 + (uint32_t)below(&random, MOST_PIECES) : 1);
    op->add_or_compare = random_next(&random);
    op->swap = random_next(&random);
    if (op->kind == COMPARE_SWAP && below(&random, 2) == 0) { /* one that matches */
      memcpy(&op->add_or_compare, server + op->server.piece[0].at, 8);
    }
  }
}

/* What the operation does, in plain memory. */
static void copy(const struct pieces* from, const uint8_t* source, const struct pieces* to, uint8_t* target) {
  uint32_t f = 0, f_at = 0, t = 0, t_at = 0;
  while (f < from->count && t < to->count) {
    const uint32_t f_left = from->piece[f].length - f_at, t_left = to->piece[t].length - t_at;
    const uint32_t bytes = f_left < t_left ? f_left : t_left;
    memcpy(target + to->piece[t].at + t_at, source + from->piece[f].at + f_at, bytes);
    f_at = bytes == f_left ? 0 : f_at + bytes;
    f += bytes == f_left;
    t_at = bytes == t_left ? 0 : t_at + bytes;
    t += bytes == t_left;
  }
}

static void imagine(const struct operation* op, uint8_t* client, uint8_t* server) {
  if (!is_atomic(op->kind)) {
    const bool read = op->kind == READ;
    copy(read ? &op->server : &op->client, read ? server : client, read ? &op->client : &op->server,
         read ? client : server);
    return;
  }
  uint64_t value = 0;
  memcpy(&value, server + op->server.piece[0].at, 8);
  memcpy(client + op->client.piece[0].at, &value, 8);
  if (op->kind == FETCH_ADD) {
    value += op->add_or_compare;
  } else if (value == op->add_or_compare) {
    value = op->swap;
  }
  memcpy(server + op->server.piece[0].at, &value, 8);
}

static int list_of(const struct link* link, const struct pieces* pieces, struct ibv_sge* list) {
  int count = 0;
  for (uint32_t i = 0; i < pieces->count; ++i) {
    if (pieces->piece[i].length != 0) {
      list[count++] = (struct ibv_sge){(uint64_t)(uintptr_t)(link->region + pieces->piece[i].at),
                                       pieces->piece[i].length, link->mr->lkey};
    }
  }
  return count;
}

static void post_receive(const struct link* link, const struct operation* op, uint64_t number) {
  struct ibv_sge list[MOST_PIECES];
  struct ibv_recv_wr request = {.wr_id = number, .sg_list = list}, *bad = NULL;
  request.num_sge = is_send(op->kind) ? list_of(link, &op->server, list) : 0;
  const int error = ibv_post_recv(link->qp, &request, &bad);
  if (error != 0) {
    stop("ibv_post_recv: %s", strerror(error));
  }
}

static void post_operation(const struct link* link, const struct operation* op, uint64_t number) {
  struct ibv_sge list[MOST_PIECES];
  struct ibv_send_wr request = {.wr_id = number,
                                .sg_list = list,
                                .num_sge = list_of(link, &op->client, list),
                                .opcode = opcodes[op->kind],
                                .send_flags = IBV_SEND_SIGNALED | (op->inlined ? IBV_SEND_INLINE : 0)},
                     *bad = NULL;
  request.imm_data = op->immediate;
  const uint64_t remote = link->peer.address + op->server.piece[0].at;
  if (is_atomic(op->kind)) {
    request.wr.atomic.remote_addr = remote;
    request.wr.atomic.rkey = link->peer.rkey;
    request.wr.atomic.compare_add = op->add_or_compare;
    request.wr.atomic.swap = op->swap;
  } else {
    request.wr.rdma.remote_addr = remote;
    request.wr.rdma.rkey = link->peer.rkey;
  }
  const int error = ibv_post_send(link->qp, &request, &bad);
  if (error != 0) {
    stop("ibv_post_send of a %s: %s", kind_names[op->kind], strerror(error));
  }
}

/* A completion as the client must see it. */
static void check_sent(const struct ibv_wc* got, const struct operation* operations, uint64_t number) {
  const struct operation* op = &operations[number];
  if (got->status != IBV_WC_SUCCESS) {
    stop("operation %" PRIu64 " (%s of %u bytes): %s, vendor syndrome %#x", number, kind_names[op->kind], op->length,
         ibv_wc_status_str(got->status), got->vendor_err);
  }
  if (got->wr_id != number || got->opcode != completions[op->kind]) {
    stop("completion of operation %" PRIu64 ", opcode %d, instead of %" PRIu64 ", opcode %d", got->wr_id,
         (int)got->opcode, number, (int)completions[op->kind]);
  }
  if ((op->kind == READ || is_atomic(op->kind)) && got->byte_len != op->length) {
    stop("operation %" PRIu64 " (%s): %u bytes instead of %u", number, kind_names[op->kind], got->byte_len, op->length);
  }
}

static void check_received(const struct ibv_wc* got, const struct operation* operations, uint64_t number) {
  const struct operation* op = &operations[number];
  if (got->status != IBV_WC_SUCCESS) {
    stop("receive of operation %" PRIu64 " (%s of %u bytes): %s, vendor syndrome %#x", number, kind_names[op->kind],
         op->length, ibv_wc_status_str(got->status), got->vendor_err);
  }
  const enum ibv_wc_opcode opcode = op->kind == WRITE_IMMEDIATE ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  const bool immediate = op->kind != SEND;
  if (got->wr_id != number || got->opcode != opcode || got->byte_len != op->length ||
      ((got->wc_flags & IBV_WC_WITH_IMM) != 0) != immediate || (immediate && got->imm_data != op->immediate)) {
    stop("receive of operation %" PRIu64 ", %u bytes, opcode %d, immediate %#x, instead of %" PRIu64
         " (%s), %u bytes, %#x",
         got->wr_id, got->byte_len, (int)got->opcode, got->imm_data, number, kind_names[op->kind], op->length,
         op->immediate);
  }
}

/* The region against what it must be; says where it first differs. */
static void compare(const struct plan* plan, const struct link* link, const uint8_t* expected,
                    const struct operation* operations, uint64_t batch) {
  if (memcmp(link->region, expected, link->region_bytes) == 0) {
    return;
  }
  size_t at = 0, wrong = 0;
  for (size_t i = link->region_bytes; i-- > 0;) {
    if (link->region[i] != expected[i]) {
      at = i;
      ++wrong;
    }
  }
  const uint64_t number = at / slot_bytes(plan);
  const struct operation* op = &operations[number];
  const struct pieces* pieces = link->client ? &op->client : &op->server;
  stop("batch %" PRIu64
       ": %zu wrong bytes in the %s's region, the first is %#x instead of %#x, %+td bytes from the "
       "data of operation %" PRIu64 " (%s of %u bytes)",
       batch, wrong, link->client ? "client" : "server", link->region[at], expected[at],
       (ptrdiff_t)at - (ptrdiff_t)pieces->piece[0].at, number, kind_names[op->kind], op->length);
}

/* ---- A run ------------------------------------------------------------------------------------------------------- */

static void run(struct link* link, const struct plan* plan) {
  const size_t bytes = link->region_bytes;
  struct operation* operations = calloc(plan->operations, sizeof(*operations));
  uint8_t* client = malloc(bytes);
  uint8_t* server = malloc(bytes);
  if (operations == NULL || client == NULL || server == NULL) {
    stop("no memory");
  }
  uint64_t done[KINDS] = {0}, moved = 0;
  for (uint64_t batch = 0; batch < plan->batches; ++batch) {
    if (link->gpu_resets && batch % 4 == 3) {
      gpu_region_reset();
    }
    random_fill(plan->seed * 2 + 0 + (batch << 32), client, bytes);
    random_fill(plan->seed * 2 + 1 + (batch << 32), server, bytes);
    memcpy(link->region, link->client ? client : server, bytes);
    schedule(plan, batch, server, operations);
    for (uint64_t i = 0; i < plan->operations; ++i) {
      imagine(&operations[i], client, server);
      ++done[operations[i].kind];
      moved += operations[i].length;
    }
    const bool late = batch % 4 == 3; /* receives that the peer must wait for: RNR NAKs */
    for (int time = 0; time < 2; ++time) {
      for (uint64_t i = 0; !link->client && (time == 1) == late && i < plan->operations; ++i) {
        if (consumes_receive(operations[i].kind)) {
          post_receive(link, &operations[i], i);
        }
      }
      if (time == 0) {
        link_meet_again(link, "before a batch", batch);
        if (late && !link->client) {
          usleep(LATE_US);
        }
      }
    }
    for (uint64_t i = 0; link->client && i < plan->operations; ++i) {
      post_operation(link, &operations[i], i);
    }
    for (uint64_t i = 0; i < plan->operations; ++i) {
      if (link->client) {
        const struct ibv_wc got = link_wait(link);
        check_sent(&got, operations, i);
      } else if (consumes_receive(operations[i].kind)) {
        const struct ibv_wc got = link_wait(link);
        check_received(&got, operations, i);
      }
    }
    link_meet_again(link, "after a batch", batch);
    compare(plan, link, link->client ? client : server, operations, batch);
  }
  for (int kind = 0; kind < KINDS; ++kind) {
    printf("%" PRIu64 " x %s\n", done[kind], kind_names[kind]);
  }
  printf("orrery-guest-verbs: %s: pass, %" PRIu64 " bytes\n", link->client ? "client" : "server", moved);
  free(operations);
  free(client);
  free(server);
}

static void usage(FILE* out) {
  fputs(
      "usage: orrery-guest-verbs [options] [HOST]\n"
      "\n"
      "Without HOST it is the server; start it first. Random RC operations, every byte compared on both sides.\n"
      "\n"
      "  -d NAME   RDMA device (default: the first)\n"
      "  -g N      index of the source GID (default: by LID, which an Ethernet port hasn't)\n"
      "  -G BDF    the region is memory of the GPU there (0000:43:00.0), registered as a dma-buf\n"
      "  -R        reset that GPU before every fourth batch\n"
      "  -p PORT   TCP port to agree by (default 7471)\n"
      "  -e        wait for completion events instead of polling\n"
      "The client's, which the server takes over:\n"
      "  -n N      batches (default 40)\n"
      "  -o N      operations of a batch, 1 to 256 (default 16)\n"
      "  -s BYTES  largest message, 8 to 8388608 (default 65536)\n"
      "  -S SEED   of lengths, places and bytes (default 1)\n"
      "\n"
      "Exit status: 0 all was right, 1 something wasn't, 2 wrong use.\n",
      out);
}

static uint64_t number(char option, const char* text, uint64_t low, uint64_t high) {
  char* end = NULL;
  const uint64_t value = strtoull(text, &end, 0);
  if (*text == 0 || *end != 0 || *text == '-' || value < low || value > high) {
    fprintf(stderr, "orrery-guest-verbs: -%c %s: give a number from %" PRIu64 " to %" PRIu64 "\n", option, text, low,
            high);
    exit(2);
  }
  return value;
}

int main(int argc, char** argv) {
  struct plan plan = {.seed = 1, .batches = 40, .operations = 16, .max_bytes = 65536};
  struct link link = {.socket = -1};
  const char* device = NULL;
  int gid_index = -1;
  uint16_t port = 7471;
  int option = 0;
  while ((option = getopt(argc, argv, "d:g:G:Rp:en:o:s:S:h")) != -1) {
    switch (option) {
      case 'd':
        device = optarg;
        break;
      case 'g':
        gid_index = (int)number('g', optarg, 0, 255);
        break;
      case 'G':
        link.gpu = optarg;
        break;
      case 'R':
        link.gpu_resets = true;
        break;
      case 'p':
        port = (uint16_t)number('p', optarg, 1, 65535);
        break;
      case 'e':
        link.by_events = true;
        break;
      case 'n':
        plan.batches = number('n', optarg, 1, UINT32_MAX);
        break;
      case 'o':
        plan.operations = number('o', optarg, 1, MOST_OPERATIONS);
        break;
      case 's':
        plan.max_bytes = number('s', optarg, 8, MOST_BYTES);
        break;
      case 'S':
        plan.seed = number('S', optarg, 0, UINT32_MAX);
        break;
      case 'h':
        usage(stdout);
        return 0;
      default:
        usage(stderr);
        return 2;
    }
  }
  if (argc - optind > 1 || (link.gpu_resets && link.gpu == NULL)) {
    usage(stderr);
    return 2;
  }
  link_meet(&link, argc > optind ? argv[optind] : NULL, port, &plan);
  if (plan.operations < 1 || plan.operations > MOST_OPERATIONS || plan.max_bytes < 8 || plan.max_bytes > MOST_BYTES ||
      plan.batches > UINT32_MAX) {
    stop("the client wants what this program can't do");
  }
  link_open(&link, device, gid_index, plan.operations * slot_bytes(&plan), (uint32_t)plan.operations);
  run(&link, &plan);
  link_meet_again(&link, "at the end", plan.batches);
  link_close(&link);
  return 0;
}
