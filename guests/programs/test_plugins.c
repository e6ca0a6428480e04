/* SPDX-License-Identifier: Apache-2.0
 *
 * The example plug-in models (examples/) as a driver uses them: registers, DMA to and from host memory and a GPU's
 * BAR, one interrupt a job, and errors that are clean.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "examples/systemc_device/crc32c_driver.h"
#include "examples/verilog_dma/verilog_dma_registers.h"
#include "random.h"
#include "tests.h"

#define PAGE ((size_t)4096)
#define VECTOR 0
#define QUIET_MS 20 /* how long nothing must come after the last interrupt */
#define GUARD 64    /* bytes around a destination that must stay as they are */
#define FILL 0x5a

static struct json json;

/* What the jobs of one function work on. */
struct bench {
  struct session* session;
  const struct device* device;
  struct dma_buffer source;
  struct dma_buffer target;
  uint8_t* lone_page; /* mapped at lone_iova; what follows is not */
  uint64_t lone_iova;
  unsigned jobs; /* that must have sent an interrupt each */
};

/* CRC32C by the CPU's own instruction (SSE 4.2). */
__attribute__((target("sse4.2"))) static uint32_t cpu_crc32c(const uint8_t* bytes, size_t size) {
  uint64_t crc = UINT32_MAX;
  size_t done = 0;
  for (; size - done >= 8; done += 8) {
    uint64_t word;
    memcpy(&word, bytes + done, 8);
    crc = __builtin_ia32_crc32di(crc, word);
  }
  for (; done < size; ++done) {
    crc = __builtin_ia32_crc32qi((uint32_t)crc, bytes[done]);
  }
  return ~(uint32_t)crc;
}

static bool all_equal(const uint8_t* bytes, uint8_t value, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    if (bytes[i] != value) {
      return false;
    }
  }
  return true;
}

/* The interrupt of one job: exactly one, in time. */
static bool interrupted(struct bench* bench) {
  ++bench->jobs;
  return event_wait(bench->device, VECTOR, bench->session->machine.timeout_ms) == 1;
}

static bool quiet(const struct bench* bench) {
  return event_wait(bench->device, VECTOR, QUIET_MS) == 0;
}

/* ---- CRC32C accelerator ---- */

/* Where its record goes: the start of the target buffer, GUARD bytes in. */
static struct crc32c_record* record_of(const struct bench* bench) {
  return (struct crc32c_record*)(void*)(bench->target.bytes + GUARD);
}

/* One checksum from its start to its interrupt; 1 done, -1 failed as a device may, 0: something else is wrong. */
static int checksum(struct bench* bench, uint64_t source, uint64_t length, uint64_t record, uint32_t* crc) {
  memset(bench->target.bytes, FILL, 2 * GUARD + sizeof(struct crc32c_record));
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (crc32c_begin(bench->device->registers, source, length, record) != 0 || !interrupted(bench)) {
    return 0;
  }
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  return crc32c_end(bench->device->registers, crc);
}

static const char* expect_checksum(struct bench* bench, uint64_t source, uint64_t length, uint32_t expected) {
  uint32_t crc = 0;
  const struct crc32c_record* record = record_of(bench);
  const uint8_t* target = bench->target.bytes;
  switch (checksum(bench, source, length, dma_address(&bench->target, GUARD), &crc)) {
    case 1:
      break;
    case 0:
      return "it doesn't start, sends no interrupt or more than one, or is still busy after it";
    default:
      return "a checksum of memory that is there failed";
  }
  if (crc != expected) {
    return "its checksum is not the CPU's";
  }
  if (record->crc != expected || record->status != CRC32C_DONE || record->length != length ||
      !all_equal(target, FILL, GUARD) || !all_equal(target + GUARD + sizeof(*record), FILL, GUARD)) {
    return "its record in memory is not that of the job";
  }
  return NULL;
}

static const char* check_checksums(struct bench* bench) {
  /* Around words, pages and the 64 KiB that the accelerator reads at once. */
  static const size_t lengths[] = {0, 1, 3, 8, 9, 511, 4095, 4096, 4097, 65535, 65536, 65537, 1000000};
  /* RFC 3720, appendix B.4, as numbers: 32 bytes of zeros, of ones, and ascending. */
  static const uint32_t vectors[] = {0x8a9136aa, 0x62a8ab43, 0x46dd794e};
  uint8_t* source = bench->source.bytes;
  const char* problem = NULL;
  for (unsigned i = 0; i < 3 && problem == NULL; ++i) {
    memset(source, i == 1 ? 0xff : 0, 32);
    for (unsigned k = 0; i == 2 && k < 32; ++k) {
      source[k] = (uint8_t)k;
    }
    if (cpu_crc32c(source, 32) != vectors[i]) {
      return "the CPU's own checksum is wrong";
    }
    problem = expect_checksum(bench, dma_address(&bench->source, 0), 32, vectors[i]);
  }
  for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]) && problem == NULL; ++i) {
    const size_t start = 7 * i; /* of any alignment */
    random_fill(bench->session->options.seed + i, source, bench->source.size);
    problem =
        expect_checksum(bench, dma_address(&bench->source, start), lengths[i], cpu_crc32c(source + start, lengths[i]));
    if (problem != NULL) {
      json_number(&json, "length", lengths[i]);
    }
  }
  return problem;
}

static const char* check_bad_checksums(struct bench* bench) {
  const uint64_t good = dma_address(&bench->target, GUARD);
  const struct {
    uint64_t source;
    uint64_t length;
    uint64_t record;
    const char* problem;
  } rows[] = {
      {bench->lone_iova + PAGE, 64, good, "reading an unmapped address is no clean error"},
      {bench->lone_iova + 100, 2 * PAGE, good, "reading past what is mapped is no clean error"},
      {bench->lone_iova, 64, bench->lone_iova + PAGE, "a record at an unmapped address is no clean error"},
      {UINT64_MAX - 31, 64, good, "a source at the end of the address space is no clean error"},
  };
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
    uint32_t crc = 0;
    if (checksum(bench, rows[i].source, rows[i].length, rows[i].record, &crc) != -1 ||
        crc32c_read(bench->device->registers, CRC32C_STATUS) != CRC32C_FAILED) {
      return rows[i].problem;
    }
    if (!all_equal(bench->target.bytes, FILL, 2 * GUARD + sizeof(struct crc32c_record))) {
      return "a failed job wrote a record";
    }
  }
  /* It works on. */
  return expect_checksum(bench, bench->lone_iova, PAGE, cpu_crc32c(bench->lone_page, PAGE));
}

static const char* check_crc32c_registers(const struct bench* bench) {
  const struct device* device = bench->device;
  if (register_read32(device, CRC32C_ID) != CRC32C_ID_VALUE) {
    return "BAR0 doesn't show the accelerator's registers";
  }
  /* One access of 8 bytes: the model only ever sees 4. */
  register_write64(device, CRC32C_SOURCE, UINT64_C(0x0123456789abcdef));
  if (register_read64(device, CRC32C_SOURCE) != UINT64_C(0x0123456789abcdef) ||
      register_read32(device, CRC32C_SOURCE + 4) != 0x01234567) {
    return "a register of 64 bits doesn't keep what is written";
  }
  /* The model answers with an address error: UR, all ones to a CPU. */
  return register_read32(device, 0x800) == UINT32_MAX ? NULL : "a register that isn't there reads as something";
}

/* ---- DMA engine ---- */

struct copy {
  uint64_t source;
  uint64_t destination;
  uint32_t length;
};

/* Runs a copy to its interrupt; its status, or 0 if there was no interrupt or more than one. */
static uint32_t run_copy(struct bench* bench, struct copy copy) {
  const struct device* device = bench->device;
  register_write64(device, VERILOG_DMA_SOURCE, copy.source);
  register_write64(device, VERILOG_DMA_DESTINATION, copy.destination);
  register_write32(device, VERILOG_DMA_LENGTH, copy.length);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  register_write32(device, VERILOG_DMA_CONTROL, VERILOG_DMA_START);
  if (!interrupted(bench)) {
    return 0;
  }
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  return register_read32(device, VERILOG_DMA_STATUS);
}

struct copy_case {
  size_t from;
  size_t to;
  uint32_t length;
};

static const char* check_copy(struct bench* bench, struct copy_case row) {
  const uint8_t* source = bench->source.bytes + row.from;
  uint8_t* target = bench->target.bytes;
  const size_t to = GUARD + row.to;
  const uint32_t length = row.length;
  random_fill(bench->session->options.seed + length, bench->source.bytes, bench->source.size);
  memset(target, FILL, to + length + GUARD);
  const struct copy copy = {dma_address(&bench->source, row.from), dma_address(&bench->target, to), length};
  const uint32_t status = run_copy(bench, copy);
  if (status != VERILOG_DMA_DONE) {
    return status == 0 ? "no interrupt, or more than one" : "a copy of memory that is there failed";
  }
  if (memcmp(target + to, source, length) != 0) {
    return "the copy has other bytes";
  }
  if (!all_equal(target, FILL, to) || !all_equal(target + to + length, FILL, GUARD)) {
    return "bytes beside the destination were written";
  }
  /* The bus moves at most a word a cycle. */
  return register_read32(bench->device, VERILOG_DMA_BYTES) == length &&
                 register_read32(bench->device, VERILOG_DMA_CYCLES) >= (length + 7) / 8
             ? NULL
             : "its counters of bytes and cycles don't fit the copy";
}

static const char* check_copies(struct bench* bench) {
  /* Around the bus's words of 8 bytes, bursts of 256, the FIFO of 512, and pages. */
  static const struct copy_case rows[] = {
      {0, 0, 8},   {8, 16, 1},       {0, 8, 13},         {248, 248, 16}, {248, 0, 256},  {8, 256, 511},
      {0, 0, 512}, {16, 2048, 4096}, {4088, 4000, 4104}, {0, 0, 65536},  {40, 0, 65537}, {256, 40, 200003},
  };
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
    const char* problem = check_copy(bench, rows[i]);
    if (problem != NULL) {
      json_number(&json, "length", rows[i].length);
      return problem;
    }
  }
  return NULL;
}

static const char* check_bad_copies(struct bench* bench) {
  const uint32_t length = 1024;
  const uint64_t from = dma_address(&bench->source, 0);
  const uint64_t to = dma_address(&bench->target, GUARD);
  const uint64_t unmapped = bench->lone_iova + PAGE;
  const uint32_t failed = VERILOG_DMA_DONE | VERILOG_DMA_FAILED;
  const struct {
    struct copy copy;
    uint32_t status;
    const char* problem;
  } rows[] = {
      {{from + 4, to, length}, failed | VERILOG_DMA_MISALIGNED, "a misaligned source is no clean error"},
      {{from, to + 1, length}, failed | VERILOG_DMA_MISALIGNED, "a misaligned destination is no clean error"},
      {{unmapped, to, length}, failed, "reading an unmapped address is no clean error"},
      {{from, unmapped, length}, failed, "writing an unmapped address is no clean error"},
      {{from, unmapped - 512, length}, failed, "writing past what is mapped is no clean error"},
  };
  memset(bench->target.bytes, FILL, 2 * GUARD + length);
  memset(bench->lone_page, FILL, PAGE);
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
    if (run_copy(bench, rows[i].copy) != rows[i].status) {
      json_number(&json, "engine_status", register_read32(bench->device, VERILOG_DMA_STATUS));
      return rows[i].problem;
    }
    if (!all_equal(bench->target.bytes, FILL, 2 * GUARD + length)) {
      return "a copy that failed to begin wrote something";
    }
  }
  if (!all_equal(bench->lone_page, FILL, PAGE - 512)) {
    return "a copy that failed wrote beside its destination";
  }
  /* It works on. */
  const struct copy copy = {from, to, length};
  return run_copy(bench, copy) == VERILOG_DMA_DONE &&
                 memcmp(bench->target.bytes + GUARD, bench->source.bytes, length) == 0
             ? NULL
             : "no copy works after a failed one";
}

static const char* check_verilog_dma_registers(const struct bench* bench) {
  const struct device* device = bench->device;
  if (register_read32(device, VERILOG_DMA_ID) != VERILOG_DMA_ID_VALUE) {
    return "BAR0 doesn't show the engine's registers";
  }
  register_write64(device, VERILOG_DMA_DESTINATION, UINT64_C(0xfedcba9876543210));
  if (register_read64(device, VERILOG_DMA_DESTINATION) != UINT64_C(0xfedcba9876543210) ||
      register_read32(device, VERILOG_DMA_DESTINATION + 4) != 0xfedcba98) {
    return "a register of 64 bits doesn't keep what is written";
  }
  return register_read32(device, 0x800) == UINT32_MAX ? NULL : "a register that isn't there reads as something";
}

/* ---- Peers ---- */

/* To a GPU's memory BAR by the DMA engine and back by it, or read there by the accelerator; the CPU sees the same. */
static const char* check_peer(struct bench* bench, const struct gpu* gpu) {
  const uint32_t length = 3000;
  const uint64_t offset = 8192 - 1000; /* across a page, a multiple of 8 */
  uint8_t* source = bench->source.bytes;
  uint8_t seen[3000];
  const uint64_t peer = gpu_bar_address(gpu, offset);
  random_fill(bench->session->options.seed ^ gpu->device->pci.serial, source, length);
  if (bench->device->pci.kind == KIND_CRC32C) {
    bar_write(gpu->device->memory + offset, source, length);
    bar_read(seen, gpu->device->memory + offset, length);
    return memcmp(seen, source, length) == 0 ? expect_checksum(bench, peer, length, cpu_crc32c(source, length))
                                             : "the GPU's memory has other bytes than the CPU wrote";
  }
  const struct copy there = {dma_address(&bench->source, 0), peer, length};
  const struct copy back = {peer, dma_address(&bench->target, 0), length};
  memset(bench->target.bytes, FILL, length);
  if (run_copy(bench, there) != VERILOG_DMA_DONE) {
    return "a copy to a GPU's memory failed";
  }
  bar_read(seen, gpu->device->memory + offset, length);
  if (memcmp(seen, source, length) != 0) {
    return "the CPU sees other bytes in the GPU's memory";
  }
  return run_copy(bench, back) == VERILOG_DMA_DONE && memcmp(bench->target.bytes, source, length) == 0
             ? NULL
             : "a copy from a GPU's memory failed";
}

static void finish(const char* problem, const char* detail) {
  if (problem != NULL) {
    report(&json, FAIL, "%s", problem);
  } else {
    report(&json, PASS, "%s", detail);
  }
}

static void begin(const struct bench* bench, unsigned index, const char* what) {
  static char name[64];
  const bool crc = bench->device->pci.kind == KIND_CRC32C;
  snprintf(name, sizeof(name), "%s%u-%s", crc ? "crc32c" : "verilog-dma", index, what);
  json_begin(&json, "plugins", name);
  json_string(&json, "bdf", bench->device->pci.bdf);
}

static void run(struct bench* bench, unsigned index) {
  const struct pci_function* pci = &bench->device->pci;
  const bool crc = pci->kind == KIND_CRC32C;
  char detail[256];

  begin(bench, index, "registers");
  json_signed(&json, "numa_node", pci->numa_node);
  snprintf(detail, sizeof(detail), "below %s, NUMA node %d, class %06" PRIx32,
           pci->parent_count == 0 ? pci->root_bus : pci->parents[pci->parent_count - 1], pci->numa_node,
           pci->class_code);
  finish(crc ? check_crc32c_registers(bench) : check_verilog_dma_registers(bench), detail);

  begin(bench, index, "host");
  const char* problem = crc ? check_checksums(bench) : check_copies(bench);
  if (problem == NULL && !quiet(bench)) {
    problem = "an interrupt that no job asked for";
  }
  snprintf(detail, sizeof(detail), "%u %s, each with one interrupt", bench->jobs,
           crc ? "checksums equal the CPU's" : "copies compared by the CPU");
  finish(problem, detail);

  begin(bench, index, "errors");
  problem = crc ? check_bad_checksums(bench) : check_bad_copies(bench);
  if (problem == NULL && !quiet(bench)) {
    problem = "an interrupt that no job asked for";
  }
  finish(problem, crc ? "bad addresses are clean errors; it works on"
                      : "bad addresses and misaligned ones are clean errors; it works on");

  begin(bench, index, "peer");
  const struct gpus* gpus = &bench->session->gpus;
  const struct gpu* peer = NULL;
  for (int i = 0; i < gpus->count; ++i) {
    if (peer == NULL ||
        (pci_common_port(pci, &peer->device->pci) == NULL && pci_common_port(pci, &gpus->gpu[i].device->pci) != NULL)) {
      peer = &gpus->gpu[i];
    }
  }
  if (peer == NULL || peer->device->memory_window < 16384) {
    report(&json, SKIP, "there is no GPU whose memory can be seen (--window)");
    return;
  }
  json_string(&json, "peer_bdf", peer->device->pci.bdf);
  snprintf(detail, sizeof(detail), "%s memory of %s, %s", crc ? "summed" : "copied to and from", peer->name,
           pci_common_port(pci, &peer->device->pci) != NULL ? "below the same switch" : "elsewhere");
  finish(check_peer(bench, peer), detail);
}

void test_plugins(struct session* session) {
  unsigned counts[2] = {0, 0};
  struct bench bench = {.session = session};
  for (int i = 0; i < session->machine.count; ++i) {
    const struct device* device = &session->machine.devices[i];
    if (device->pci.kind != KIND_CRC32C && device->pci.kind != KIND_VERILOG_DMA) {
      continue;
    }
    json_begin(&json, "plugins", "access");
    if (!session->machine.vfio) {
      report(&json, SKIP, "interrupts, and addresses that lead nowhere, need VFIO");
      return;
    }
    if (bench.source.bytes == NULL) {
      bench.source = dma_allocate(&session->machine, 1 << 20);
      bench.target = dma_allocate(&session->machine, 1 << 20);
      bench.lone_iova = dma_reserve(&session->machine, 2 * PAGE);
      bench.lone_page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (bench.lone_page == MAP_FAILED || !dma_map(&session->machine, bench.lone_page, PAGE, bench.lone_iova)) {
        report(&json, FAIL, "a page can't be mapped for DMA: %s", strerror(errno));
        return;
      }
    }
    random_fill(session->options.seed + 200, bench.lone_page, PAGE);
    bench.device = device;
    bench.jobs = 0;
    run(&bench, counts[device->pci.kind == KIND_CRC32C ? 0 : 1]++);
  }
  if (counts[0] + counts[1] == 0) {
    json_begin(&json, "plugins", "functions");
    report(&json, SKIP, "there is no function of an example plug-in model");
  }
}
