/* SPDX-License-Identifier: Apache-2.0 */
#include "link.h"

#include <endian.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gpu_region.h"

enum { CONNECT_TRIES = 100, CONNECT_PAUSE_US = 200000, WAIT_MS = 60000, PAGE = 4096 };
static const uint64_t greeting = UINT64_C(0x4f72726572790001); /* "Orrery", version 1 */

void stop(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fflush(stdout);
  fputs("orrery-guest-verbs: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(1);
}

/* ---- The TCP connection ------------------------------------------------------------------------------------------ */

static void send_words(const struct link* link, const uint64_t* words, size_t count) {
  uint64_t wire[16];
  for (size_t i = 0; i < count; ++i) {
    wire[i] = htobe64(words[i]);
  }
  const char* at = (const char*)wire;
  for (size_t left = count * 8; left != 0;) {
    const ssize_t done = send(link->socket, at, left, MSG_NOSIGNAL);
    if (done <= 0) {
      stop("the other side is gone: %s", strerror(errno));
    }
    at += done;
    left -= (size_t)done;
  }
}

static void receive_words(const struct link* link, uint64_t* words, size_t count) {
  char* at = (char*)words;
  for (size_t left = count * 8; left != 0;) {
    struct pollfd wait = {.fd = link->socket, .events = POLLIN, .revents = 0};
    if (poll(&wait, 1, WAIT_MS) == 0) {
      stop("the other side is silent");
    }
    const ssize_t done = recv(link->socket, at, left, 0);
    if (done <= 0) {
      stop("the other side is gone: %s", done == 0 ? "it has closed the connection" : strerror(errno));
    }
    at += done;
    left -= (size_t)done;
  }
  for (size_t i = 0; i < count; ++i) {
    words[i] = be64toh(words[i]);
  }
}

static int listen_on(uint16_t port) {
  const int listener = socket(AF_INET6, SOCK_STREAM, 0);
  const int on = 1, off = 0;
  struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any, .sin6_port = htons(port)};
  if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) != 0 ||
      bind(listener, (struct sockaddr*)&address, sizeof(address)) != 0 || listen(listener, 1) != 0) {
    stop("can't listen on port %u: %s", (unsigned)port, strerror(errno));
  }
  const int connection = accept(listener, NULL, NULL);
  if (connection < 0) {
    stop("no client on port %u: %s", (unsigned)port, strerror(errno));
  }
  close(listener);
  return connection;
}

/* The server may need a moment. */
static int connect_to(const char* host, uint16_t port) {
  char service[8];
  snprintf(service, sizeof(service), "%u", (unsigned)port);
  const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
  struct addrinfo* found = NULL;
  const int error = getaddrinfo(host, service, &hints, &found);
  if (error != 0) {
    stop("%s: %s", host, gai_strerror(error));
  }
  for (int tries = 0; tries < CONNECT_TRIES; ++tries) {
    for (const struct addrinfo* one = found; one != NULL; one = one->ai_next) {
      const int connection = socket(one->ai_family, one->ai_socktype, one->ai_protocol);
      if (connection >= 0 && connect(connection, one->ai_addr, one->ai_addrlen) == 0) {
        freeaddrinfo(found);
        return connection;
      }
      close(connection);
    }
    usleep(CONNECT_PAUSE_US);
  }
  stop("no server at %s, port %u: %s", host, (unsigned)port, strerror(errno));
}

void link_meet(struct link* link, const char* host, uint16_t port, struct plan* plan) {
  link->client = host != NULL;
  link->socket = link->client ? connect_to(host, port) : listen_on(port);
  const int on = 1;
  setsockopt(link->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  uint64_t words[5] = {greeting, plan->seed, plan->batches, plan->operations, plan->max_bytes};
  if (link->client) {
    send_words(link, words, 5);
  } else {
    receive_words(link, words, 5);
    if (words[0] != greeting) {
      stop("the client isn't this program, or is another version");
    }
    *plan = (struct plan){words[1], words[2], words[3], words[4]};
  }
}

void link_meet_again(struct link* link, const char* where, uint64_t word) {
  uint64_t other = 0;
  send_words(link, &word, 1);
  receive_words(link, &other, 1);
  if (other != word) {
    stop("%s: the other side is somewhere else", where);
  }
}

/* ---- The RNIC ---------------------------------------------------------------------------------------------------- */

static struct ibv_context* open_device(const char* name) {
  int count = 0;
  struct ibv_device** devices = ibv_get_device_list(&count);
  for (int i = 0; devices != NULL && i < count; ++i) {
    if (name == NULL || strcmp(ibv_get_device_name(devices[i]), name) == 0) {
      struct ibv_context* context = ibv_open_device(devices[i]);
      ibv_free_device_list(devices);
      return context;
    }
  }
  stop("there is no RDMA device %s", name == NULL ? "" : name);
}

static void exchange(struct link* link) {
  uint64_t gid[2];
  memcpy(gid, &link->self.gid, 16);
  const struct peer* self = &link->self;
  uint64_t words[8] = {self->qp, self->psn, self->rkey, self->lid, gid[0], gid[1], self->address, self->mtu};
  send_words(link, words, 8);
  receive_words(link, words, 8);
  link->peer = (struct peer){.qp = (uint32_t)words[0],
                             .psn = (uint32_t)words[1],
                             .rkey = (uint32_t)words[2],
                             .lid = (uint16_t)words[3],
                             .address = words[6],
                             .mtu = words[7]};
  memcpy(&link->peer.gid, &words[4], 16);
}

static void bring_up(struct link* link, int gid_index) {
  struct ibv_qp_attr init = {
      .qp_state = IBV_QPS_INIT,
      .port_num = 1,
      .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC};
  int error = ibv_modify_qp(link->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error != 0) {
    stop("QP to INIT: %s", strerror(error));
  }
  struct ibv_qp_attr rtr = {
      .qp_state = IBV_QPS_RTR,
      .path_mtu = (enum ibv_mtu)(link->self.mtu < link->peer.mtu ? link->self.mtu : link->peer.mtu),
      .dest_qp_num = link->peer.qp,
      .rq_psn = link->peer.psn,
      .max_dest_rd_atomic = 16,
      .min_rnr_timer = 12, /* 0.64 ms */
      .ah_attr = {.dlid = link->peer.lid, .port_num = 1}};
  if (gid_index >= 0) {
    rtr.ah_attr.is_global = 1;
    rtr.ah_attr.grh.dgid = link->peer.gid;
    rtr.ah_attr.grh.sgid_index = (uint8_t)gid_index;
    rtr.ah_attr.grh.hop_limit = 64;
  }
  error = ibv_modify_qp(link->qp, &rtr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0) {
    stop("QP to RTR: %s", strerror(error));
  }
  struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
                            .timeout = 14, /* 67 ms */
                            .retry_cnt = 7,
                            .rnr_retry = 7, /* for ever */
                            .sq_psn = link->self.psn,
                            .max_rd_atomic = 16};
  error = ibv_modify_qp(
      link->qp, &rts,
      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  if (error != 0) {
    stop("QP to RTS: %s", strerror(error));
  }
}

void link_open(struct link* link, const char* device, int gid_index, size_t region_bytes, uint32_t depth) {
  link->context = open_device(device);
  struct ibv_port_attr port;
  if (link->context == NULL || ibv_query_port(link->context, 1, &port) != 0) {
    stop("can't open %s: %s", device == NULL ? "the RDMA device" : device, strerror(errno));
  }
  if (port.state != IBV_PORT_ACTIVE) {
    stop("the port is %s", ibv_port_state_str(port.state));
  }
  if (gid_index >= 0 && ibv_query_gid(link->context, 1, gid_index, &link->self.gid) != 0) {
    stop("there is no GID %d", gid_index);
  }
  link->region_bytes = region_bytes;
  struct gpu_region gpu = {.dmabuf = -1};
  if (link->gpu != NULL) {
    gpu = gpu_region_open(link->gpu, region_bytes);
    link->region = gpu.bytes;
  } else {
    link->region = aligned_alloc(PAGE, (region_bytes + PAGE - 1) / PAGE * PAGE);
  }
  link->pd = ibv_alloc_pd(link->context);
  if (link->region == NULL || link->pd == NULL) {
    stop("no memory, or no protection domain: %s", strerror(errno));
  }
  const int access =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  link->mr = link->gpu == NULL
                 ? ibv_reg_mr(link->pd, link->region, region_bytes, access)
                 : ibv_reg_dmabuf_mr(link->pd, 0, region_bytes, (uint64_t)(uintptr_t)link->region, gpu.dmabuf, access);
  if (link->mr == NULL) {
    stop("%s of %zu bytes: %s", link->gpu == NULL ? "ibv_reg_mr" : "ibv_reg_dmabuf_mr", region_bytes, strerror(errno));
  }
  link->channel = link->by_events ? ibv_create_comp_channel(link->context) : NULL;
  link->cq = ibv_create_cq(link->context, (int)(2 * depth), NULL, link->channel, 0);
  if (link->cq == NULL) {
    stop("ibv_create_cq: %s", strerror(errno));
  }
  struct ibv_qp_init_attr attributes = {
      .send_cq = link->cq,
      .recv_cq = link->cq,
      .cap = {.max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 64},
      .qp_type = IBV_QPT_RC};
  link->qp = ibv_create_qp(link->pd, &attributes);
  if (link->qp == NULL) {
    stop("ibv_create_qp: %s", strerror(errno));
  }
  link->self.qp = link->qp->qp_num;
  link->self.psn = (uint32_t)(link->client ? 0xfffff0 : 0x000123); /* the client's wraps */
  link->self.rkey = link->mr->rkey;
  link->self.lid = port.lid;
  link->self.address = (uint64_t)(uintptr_t)link->region;
  link->self.mtu = port.active_mtu;
  exchange(link);
  bring_up(link, gid_index);
}

struct ibv_wc link_wait(struct link* link) {
  struct ibv_wc completion;
  for (;;) {
    int got = ibv_poll_cq(link->cq, 1, &completion);
    if (got == 0 && link->channel != NULL) {
      if (ibv_req_notify_cq(link->cq, 0) != 0) {
        stop("ibv_req_notify_cq: %s", strerror(errno));
      }
      got = ibv_poll_cq(link->cq, 1, &completion); /* what came before it was armed */
      if (got == 0) {
        struct pollfd wait = {.fd = link->channel->fd, .events = POLLIN, .revents = 0};
        if (poll(&wait, 1, WAIT_MS) == 0) {
          stop("no completion event");
        }
        struct ibv_cq* cq = NULL;
        void* context = NULL;
        if (ibv_get_cq_event(link->channel, &cq, &context) != 0) {
          stop("ibv_get_cq_event: %s", strerror(errno));
        }
        ibv_ack_cq_events(cq, 1);
        continue;
      }
    }
    if (got < 0) {
      stop("ibv_poll_cq: %s", strerror(errno));
    }
    if (got > 0) {
      return completion;
    }
  }
}

void link_close(struct link* link) {
  int error = ibv_destroy_qp(link->qp);
  error = error != 0 ? error : ibv_destroy_cq(link->cq);
  error = error != 0 || link->channel == NULL ? error : ibv_destroy_comp_channel(link->channel);
  error = error != 0 ? error : ibv_dereg_mr(link->mr);
  error = error != 0 ? error : ibv_dealloc_pd(link->pd);
  error = error != 0 ? error : ibv_close_device(link->context);
  if (error != 0) {
    stop("can't give the RNIC's objects back: %s", strerror(error));
  }
  if (link->gpu == NULL) {
    free(link->region);
  }
  close(link->socket);
}
