// A guest without a guest: drives one device of a Platform through FunctionAccess, with a memfd as its RAM, and
// memory of which every read can be held up.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/error.h"
#include "pcie/config_space.h"
#include "systemc_models/server/platform.h"
#include "systemc_models/server/server_config.h"

namespace orrery::test {

// Memory whose reads wait until the test lets them go: what a DMA is in the middle of.
class HeldMemory final : public pcie::MessageMemory {
 public:
  static constexpr std::uint64_t base = 0x2'0000'0000;  // as IOVA
  static constexpr std::uint64_t size = 1 << 20;

  void read(Iova /*address*/, std::span<std::byte> into, Done done, void* context) override {
    held_.push_back({into, done, context});
  }
  void write(Iova /*address*/, std::span<const std::byte> /*from*/, Done done, void* context) override {
    held_.push_back({{}, done, context});
  }
  [[nodiscard]] std::size_t held() const { return held_.size(); }
  // Answers everything that waits, reads with bytes of `value`.
  void release(std::byte value) {
    for (const Access& access : std::exchange(held_, {})) {
      std::fill(access.into.begin(), access.into.end(), value);
      access.done(access.context, true);
    }
  }

 private:
  struct Access {
    std::span<std::byte> into;
    Done done;
    void* context;
  };
  std::vector<Access> held_;
};

class PluginHost final : private pcie::InterruptSink {
 public:
  static constexpr std::uint64_t ram_size = 16 << 20;
  static constexpr std::uint64_t ram_base = 0x1'0000'0000;  // as IOVA

  // `extra`: more lines of the configuration. Throws what the platform throws.
  PluginHost(const std::string& model, const std::string& mode, const std::string& params = "",
             const std::string& extra = "")
      : platform(models::parse_server_config("[time]\nmode = \"" + mode +
                                                 "\"\n[topology]\nswitches = 1\ngpus_per_switch = 1\n[gpu]\n"
                                                 "bar_mib = 16\n" +
                                                 extra +
                                                 "\n[[device]]\nslot = \"switch0.slot2\"\nname = \"dut\"\nmodel = \"" +
                                                 model + "\"\nparams = {" + params + "}\n",
                                             "test.toml")) {
    device = &function("dut");
    fd_ = memfd_create("guest", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(fd_, ram_size), 0);
    ram = static_cast<unsigned char*>(mmap(nullptr, ram_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
    EXPECT_NE(ram, MAP_FAILED);
    device->set_interrupt_sink(this);
    map(0, ram_size);
    EXPECT_EQ(device->dma_map(Iova{HeldMemory::base}, HeldMemory::size, {true, true}, std::nullopt, &held),
              pcie::MapResult::ok);
    enumerate(*device, 0xe000'0000);
  }
  PluginHost(const PluginHost&) = delete;
  PluginHost& operator=(const PluginHost&) = delete;
  ~PluginHost() {
    device->set_interrupt_sink(nullptr);
    munmap(ram, ram_size);
    close(fd_);
  }

  HeldMemory held;
  models::Platform platform;
  pcie::FunctionAccess* device = nullptr;
  unsigned char* ram = nullptr;
  std::vector<unsigned> interrupts;
  std::mt19937_64 random{20240607};
  // What an interrupt handler does, besides being counted.
  std::function<void()> on_interrupt;

  // Assigns every BAR an address from `next` on and switches memory decoding and bus mastering on.
  static void enumerate(pcie::FunctionAccess& function, std::uint64_t next) {
    for (unsigned bar = 0; bar < pcie::bar_count; ++bar) {
      const pcie::BarDescription described = function.bars()[bar];
      if (described.size == 0) {
        continue;
      }
      next = (next + described.size - 1) / described.size * described.size;
      const std::uint64_t address = next;
      function.config_write(0x10 + 4 * bar, std::as_bytes(std::span(&address, 1)).first(described.is_64bit ? 8 : 4));
      next += described.size;
    }
    const std::uint16_t bits = pcie::command_bit::memory_space | pcie::command_bit::bus_master;
    function.config_write(pcie::config_register::command, std::as_bytes(std::span(&bits, 1)));
  }
  // Where a BAR of `function` stands.
  static std::uint64_t bar_address(pcie::FunctionAccess& function, unsigned bar) {
    std::uint64_t address = 0;
    function.config_read(0x10 + 4 * bar, std::as_writable_bytes(std::span(&address, 1)));
    return (function.bars()[bar].is_64bit ? address : address & 0xffff'ffffU) & ~std::uint64_t{15};
  }
  void command(std::uint16_t bits) {
    device->config_write(pcie::config_register::command, std::as_bytes(std::span(&bits, 1)));
  }
  std::uint32_t config_read32(std::uint32_t offset) {
    std::uint32_t value = 0;
    device->config_read(offset, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  void config_write32(std::uint32_t offset, std::uint32_t value) {
    device->config_write(offset, std::as_bytes(std::span(&value, 1)));
  }

  // [offset, offset + size) of the RAM, by DMA at iova(offset).
  void map(std::uint64_t offset, std::uint64_t size, pcie::DmaAccess access = {true, true}) {
    ASSERT_EQ(device->dma_map(Iova{iova(offset)}, size, access, pcie::FileWindow{fd_, offset}, nullptr),
              pcie::MapResult::ok);
  }
  void unmap(std::uint64_t offset, std::uint64_t size) {
    ASSERT_EQ(device->dma_unmap(Iova{iova(offset)}, size), pcie::MapResult::ok);
  }
  static std::uint64_t iova(std::uint64_t offset) { return ram_base + offset; }

  template <class Integer>
  Integer read(std::uint64_t offset, unsigned bar = 0) {
    Integer value = 0;
    device->bar_read(bar, offset, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  std::uint32_t read32(std::uint64_t offset, unsigned bar = 0) { return read<std::uint32_t>(offset, bar); }
  std::uint64_t read64(std::uint64_t offset, unsigned bar = 0) { return read<std::uint64_t>(offset, bar); }
  template <class Integer>
  void post(std::uint64_t offset, Integer value, unsigned bar = 0) {
    device->bar_write(bar, offset, std::as_bytes(std::span(&value, 1)));
  }
  // A write and what follows from it at once. In timed mode a posted write is under way until time passes.
  void write32(std::uint64_t offset, std::uint32_t value, unsigned bar = 0) {
    post(offset, value, bar);
    platform.settle();
  }
  void write64(std::uint64_t offset, std::uint64_t value, unsigned bar = 0) {
    post(offset, value, bar);
    platform.settle();
  }

  // Lets the platform do what it does by itself until `done` says so; false if it came to rest before, or more
  // than `limit` of simulated time has passed.
  bool run_until(const std::function<bool()>& done, Picoseconds limit = {1'000'000'000'000}) {
    const Picoseconds end = platform.now() + limit;
    while (!done()) {
      const Picoseconds next = platform.next_activity();
      if (next > end) {
        return false;
      }
      platform.advance(next, 0);
    }
    return true;
  }
  bool wait_for_interrupts(std::size_t count) {
    return run_until([&] { return interrupts.size() >= count; });
  }
  void run_to_rest() {
    run_until([] { return false; });
  }

  void fill_random(std::uint64_t offset, std::uint64_t size) {
    for (std::uint64_t i = 0; i < size; ++i) {
      ram[offset + i] = static_cast<unsigned char>(random());
    }
  }
  pcie::FunctionAccess& function(const std::string& name) {
    for (std::size_t i = 0; i < platform.functions(); ++i) {
      if (platform.function(i).name() == name) {
        return platform.function(i);
      }
    }
    throw Error("no function " + name);
  }
  std::uint64_t uniform(std::uint64_t low, std::uint64_t high) {
    return std::uniform_int_distribution<std::uint64_t>(low, high)(random);
  }

 private:
  void msix(unsigned vector) override {
    interrupts.push_back(vector);
    if (on_interrupt) {
      on_interrupt();
    }
  }

  int fd_ = -1;
};

}  // namespace orrery::test
