/* Bare-metal tests of a firmware team's own hardware abstraction, run before there is hardware:
 *
 *   orrery fw test --elf acme_test.elf --map acme.toml --junit results.xml
 *
 * Runs in machine mode on QEMU's virt machine. A line "PASS name" or "FAIL name: why" on the UART is a result; the
 * machine's test device ends the run.
 */
#include <stdint.h>

#define UART 0x10000000u
#define FINISH 0x00100000u /* 0x5555: status 0; 0x3333 | status << 16 */
#define ECAM 0x30000000u
#define BAR 0x40000000u
#define VENDOR_AND_DEVICE 0x0e211234u

enum {
  ID = 0x00,
  SCRATCH = 0x04,
  ALARM = 0x08,
  UPTIME = 0x0c,
  DMA_BUS_LOW = 0x20,
  DMA_BUS_HIGH = 0x24,
  DMA_BYTES = 0x28,
  DMA_WINDOW = 0x2c,
  DMA_GO = 0x30,
  DMA_STATE = 0x34,
  DMA_ACKNOWLEDGE = 0x38,
  WINDOW = 0x1000,
};
enum { BUSY = 1, DONE = 2, ERROR = 3 };

#define MEMORY 0x10000000u /* 16 MiB that `orrery fw test` gives the device */

static uint32_t load(uintptr_t address) {
  return *(volatile uint32_t*)address;
}
static void store(uintptr_t address, uint32_t value) {
  *(volatile uint32_t*)address = value;
}
static uint32_t get(uint32_t offset) {
  return load(BAR + offset);
}
static void set(uint32_t offset, uint32_t value) {
  store(BAR + offset, value);
}

static void print(const char* text) {
  for (; *text; ++text) {
    *(volatile uint8_t*)(uintptr_t)UART = (uint8_t)*text;
  }
}

static int failures;
static void result(const char* name, const char* why) {
  print(why ? "FAIL " : "PASS ");
  print(name);
  if (why) {
    print(": ");
    print(why);
    ++failures;
  }
  print("\n");
}

static int find_device(void) {
  for (uintptr_t at = ECAM; at < ECAM + 32 * 0x8000; at += 0x8000) {
    if (load(at) == VENDOR_AND_DEVICE) {
      store(at + 0x10, BAR);
      store(at + 0x04, 0x6); /* memory, bus master */
      return 1;
    }
  }
  return 0;
}

/* One transfer to its end; what it ended with. */
static uint32_t transfer(uint32_t direction, uint32_t bus, uint32_t window, uint32_t bytes) {
  set(DMA_BUS_LOW, bus);
  set(DMA_BUS_HIGH, 0);
  set(DMA_BYTES, bytes);
  set(DMA_WINDOW, window);
  set(DMA_GO, direction);
  uint32_t state = BUSY;
  for (int tries = 0; tries < 100000 && (state == BUSY); ++tries) {
    state = get(DMA_STATE);
  }
  set(DMA_ACKNOWLEDGE, 1);
  return state;
}

static const char* dma_round_trip(void) {
  for (uint32_t i = 0; i < 64; ++i) {
    set(WINDOW + 4 * i, 0x9e3779b9u * (i + 1));
    set(WINDOW + 0x400 + 4 * i, 0);
  }
  if (transfer(2, MEMORY + 0x100, 0, 256) != DONE) {
    return "the write didn't end well";
  }
  if (transfer(1, MEMORY + 0x100, 0x400, 256) != DONE) {
    return "the read didn't end well";
  }
  for (uint32_t i = 0; i < 64; ++i) {
    if (get(WINDOW + 0x400 + 4 * i) != 0x9e3779b9u * (i + 1)) {
      return "other data came back";
    }
  }
  return 0;
}

void acme_main(void) {
  if (!find_device()) {
    result("device", "there is none on bus 0");
  } else {
    result("id", get(ID) == 0x41434d45 ? 0 : "wrong");
    set(SCRATCH, 0xdeadbeef);
    result("scratch", get(SCRATCH) == 0xbeef ? 0 : "its 16 bits don't keep what is written");
    set(ALARM, 0x1);
    result("alarm", get(ALARM) == 0x2 ? 0 : "a written 1 doesn't clear its bit alone");
    const uint32_t before = get(UPTIME);
    uint32_t after = before;
    for (int tries = 0; tries < 1000000 && after == before; ++tries) {
      after = get(UPTIME);
    }
    result("uptime", after != before ? 0 : "stands still");
    result("dma_round_trip", dma_round_trip());
    result("dma_where_nothing_is", transfer(1, 0x70000000u, 0, 64) == ERROR ? 0 : "no error");
  }
  store(FINISH, failures ? 0x3333u | 1u << 16 : 0x5555u);
  for (;;) {
  }
}
