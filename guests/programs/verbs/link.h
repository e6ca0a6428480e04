/* SPDX-License-Identifier: Apache-2.0
 *
 * Two processes, each with an RNIC, one RC connection between them, and a TCP connection to agree by.
 */
#ifndef ORRERY_GUESTS_PROGRAMS_VERBS_LINK_H
#define ORRERY_GUESTS_PROGRAMS_VERBS_LINK_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a run does; the client says it, the server takes it over. */
struct plan {
  uint64_t seed;
  uint64_t batches;
  uint64_t operations; /* of a batch, at once: 1 ... 256 */
  uint64_t max_bytes;  /* of a message: 8 ... 8 MiB */
};

struct peer {
  uint32_t qp, psn, rkey;
  uint16_t lid;
  union ibv_gid gid;
  uint64_t address; /* of its region */
  uint64_t mtu;     /* enum ibv_mtu */
};

struct link {
  int socket;
  bool client;
  bool by_events;
  bool gpu_resets;
  struct ibv_context* context;
  struct ibv_pd* pd;
  struct ibv_mr* mr;
  struct ibv_comp_channel* channel; /* null: completions are polled for */
  struct ibv_cq* cq;
  struct ibv_qp* qp;
  struct peer self, peer;
  uint8_t* region;
  const char* gpu; /* null: the region is the program's memory; else that of the GPU with this BDF */
  size_t region_bytes;
};

/* Ends the program with status 1 and "orrery-guest-verbs: " before the message, a line break after it. */
void stop(const char* format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Connects to `host`, or waits for a client if it is null, and exchanges the plan. */
void link_meet(struct link* link, const char* host, uint16_t port, struct plan* plan);
/* Opens the device, registers a region of that size, and brings the QP up to RTS. gid_index < 0: by LID. */
void link_open(struct link* link, const char* device, int gid_index, size_t region_bytes, uint32_t depth);
/* Both sides have come here. `word`, under 2^32, must be equal on both sides. */
void link_meet_again(struct link* link, const char* where, uint64_t word);
/* Waits for the next completion. */
struct ibv_wc link_wait(struct link* link);
void link_close(struct link* link);

#endif
