/* SPDX-License-Identifier: Apache-2.0
 *
 * orrery-guest-demo: what a guest does with Orrery's GPUs and RNICs, from its own user space.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h"

static const struct {
  const char* name;
  void (*run)(struct session* session);
  const char* help;
  bool by_name_only; /* not part of "all" */
} tests[] = {
    {"outage", test_outage, "wait until the devices read all ones, and until they are back", true},
    {"load", test_load, "keep every GPU copying to host memory until --timeout (/run/orrery-load: it has begun)", true},
    {"memory", test_memory, "GPU memory through its BAR, by the CPU", false},
    {"copy", test_copy, "engine copies: host to GPU and back, GPU to GPU", false},
    {"allreduce", test_allreduce, "ring AllReduce over all GPUs, sums and byte counters verified", false},
    {"interrupt", test_interrupt, "completion by MSI-X", false},
    {"unmap", test_unmap, "unmap a page under a running DMA", false},
    {"rnic", test_rnic, "RNIC self-test engines against host and GPU memory", false},
    {"plugins", test_plugins, "the example plug-in models: CRC32C accelerator, DMA engine in Verilog", false},
};
#define TEST_COUNT (sizeof(tests) / sizeof(tests[0]))

static void usage(FILE* out) {
  fprintf(out,
          "usage: orrery-guest-demo [options] COMMAND...\n"
          "\n"
          "  topology   what this machine shows of Orrery's functions (touches no device)\n");
  for (size_t i = 0; i < TEST_COUNT; ++i) {
    fprintf(out, "  %-10s %s\n", tests[i].name, tests[i].help);
  }
  fprintf(out,
          "  all        all of these but outage and load\n"
          "\n"
          "  --size BYTES       of a copy, and of each GPU's data in an AllReduce (default 4 MiB)\n"
          "  --window BYTES     of each GPU's BAR2 that peers and the CPU get to see (default 16 MiB)\n"
          "  --bar-bytes BYTES  of each block that the CPU writes through a BAR (default 64 KiB)\n"
          "  --seed N           of the random data (default 1)\n"
          "  --timeout MS       for anything that hardware is waited for (default 30000)\n"
          "  --no-vfio          sysfs BARs and physical addresses: for kernels without an IOMMU; no interrupts\n"
          "  BYTES may end in K, M or G.\n"
          "\n"
          "Results are one line each, and for programs one line of JSON after \"ORRERY-JSON \".\n"
          "Exit status: 0 all passed, 1 something failed, 2 wrong use or no access to the devices.\n");
}

static uint64_t parse_number(const char* option, const char* text, uint64_t low, uint64_t high) {
  char* end = NULL;
  uint64_t value = strtoull(text, &end, 0);
  const char* const suffixes = "KMG";
  const char* suffix = *end == 0 ? NULL : strchr(suffixes, *end);
  if (suffix != NULL) {
    const unsigned shift = 10 * (unsigned)(suffix - suffixes + 1);
    value = value > (UINT64_MAX >> shift) ? UINT64_MAX : value << shift;
    ++end;
  }
  if (end == text || *end != 0 || text[0] == '-' || value < low || value > high) {
    fprintf(stderr, "orrery-guest-demo: --%s %s: give a number from %" PRIu64 " to %" PRIu64 "\n", option, text, low,
            high);
    exit(2);
  }
  return value;
}

static void parse_options(int argc, char** argv, struct session* session) {
  static const struct option options[] = {
      {"size", required_argument, NULL, 's'},
      {"window", required_argument, NULL, 'w'},
      {"bar-bytes", required_argument, NULL, 'b'},
      {"seed", required_argument, NULL, 'r'},
      {"timeout", required_argument, NULL, 't'},
      {"no-vfio", no_argument, NULL, 'n'},
      {"help", no_argument, NULL, 'h'},
      {NULL, 0, NULL, 0},
  };
  session->options = (struct options){.size = 4u << 20, .bar_bytes = 64u << 10, .seed = 1};
  session->machine.vfio = true;
  session->machine.window = 16u << 20;
  session->machine.timeout_ms = 30000;
  const uint64_t gib = UINT64_C(1) << 30;
  int option;
  while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
    switch (option) {
      case 's':
        session->options.size = parse_number("size", optarg, 1, 64 * gib);
        break;
      case 'w':
        session->machine.window = parse_number("window", optarg, 4096, 128 * gib) / 4096 * 4096;
        break;
      case 'b':
        session->options.bar_bytes = parse_number("bar-bytes", optarg, 64, gib);
        break;
      case 'r':
        session->options.seed = parse_number("seed", optarg, 0, UINT64_MAX);
        break;
      case 't':
        session->machine.timeout_ms = (int)parse_number("timeout", optarg, 1, 86400000);
        break;
      case 'n':
        session->machine.vfio = false;
        break;
      case 'h':
        usage(stdout);
        exit(0);
      default:
        usage(stderr);
        exit(2);
    }
  }
}

/* True if the command was asked for, by name or as part of "all". */
static bool wanted(const char* name, bool by_name_only, int count, char** commands) {
  for (int i = 0; i < count; ++i) {
    if (strcmp(commands[i], name) == 0 || (!by_name_only && strcmp(commands[i], "all") == 0)) {
      return true;
    }
  }
  return false;
}

static void check_commands(int count, char** commands) {
  for (int i = 0; i < count; ++i) {
    bool known = strcmp(commands[i], "all") == 0 || strcmp(commands[i], "topology") == 0;
    for (size_t k = 0; k < TEST_COUNT; ++k) {
      known = known || strcmp(commands[i], tests[k].name) == 0;
    }
    if (!known) {
      fprintf(stderr, "orrery-guest-demo: there is no command \"%s\"\n", commands[i]);
      usage(stderr);
      exit(2);
    }
  }
  if (count == 0) {
    usage(stderr);
    exit(2);
  }
}

static int summarise(void) {
  static struct json json;
  const unsigned passed = report_count(PASS);
  const unsigned failed = report_count(FAIL);
  const unsigned skipped = report_count(SKIP);
  json_begin(&json, "summary", "all");
  json_number(&json, "passed", passed);
  json_number(&json, "failed", failed);
  json_number(&json, "skipped", skipped);
  report(&json, failed == 0 ? PASS : FAIL, "%u passed, %u failed, %u skipped", passed, failed, skipped);
  return failed == 0 ? 0 : 1;
}

int main(int argc, char** argv) {
  static struct session session;
  parse_options(argc, argv, &session);
  const int count = argc - optind;
  char** commands = argv + optind;
  check_commands(count, commands);

  if (wanted("topology", false, count, commands)) {
    test_topology();
  }
  bool devices = false;
  for (size_t i = 0; i < TEST_COUNT; ++i) {
    devices = devices || wanted(tests[i].name, tests[i].by_name_only, count, commands);
  }
  if (devices) {
    if (!machine_open(&session.machine)) {
      report_failure("access", "devices", "no access to the devices; the lines above say why");
      summarise();
      return 2;
    }
    gpus_open(&session.machine, &session.gpus);
    for (size_t i = 0; i < TEST_COUNT; ++i) {
      if (wanted(tests[i].name, tests[i].by_name_only, count, commands)) {
        tests[i].run(&session);
      }
    }
    machine_close(&session.machine);
  }
  return summarise();
}
