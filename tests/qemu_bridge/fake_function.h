// A PCI function made of plain memory, which notes how it was used: the platform's stand-in for tests of
// the bridge, the fuzzers and the benchmark.
#pragma once

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/file_descriptor.h"
#include "pcie/function_access.h"

namespace orrery::bridge::test {

// What an access was; kept in FakeFunction::accesses.
struct Access {
  bool write = false;
  bool config = false;
  unsigned bar = 0;
  std::uint64_t offset = 0;
  std::vector<std::byte> data;
};

class FakeFunction : public pcie::FunctionAccess {
 public:
  struct Mapping {
    std::uint64_t size = 0;
    pcie::DmaAccess access;
    std::optional<std::uint64_t> file_offset;
    FileDescriptor file;
    pcie::MessageMemory* messages = nullptr;
  };

  // BAR0: 4 KiB of registers; BAR2: `bar2_size` bytes, 64-bit, prefetchable, mappable if a descriptor is
  // given (borrowed); `vectors` MSI-X vectors.
  explicit FakeFunction(unsigned vectors = 4, std::uint64_t bar2_size = std::uint64_t{2} << 20, int bar2_fd = -1)
      : vectors_(vectors) {
    bars_[0] = {4096, false, false, -1};
    bars_[2] = {bar2_size, true, true, bar2_fd};
    for (unsigned i = 0; i < bars_.size(); ++i) {
      memory_[i].resize(bars_[i].size);
    }
    config_.resize(4096);
  }

  std::string name() const override { return "fake0"; }
  std::array<pcie::BarDescription, pcie::bar_count> bars() const override { return bars_; }
  std::uint32_t config_size() const override { return static_cast<std::uint32_t>(config_.size()); }
  unsigned msix_vectors() const override { return vectors_; }

  void config_read(std::uint32_t offset, std::span<std::byte> into) override {
    std::memcpy(into.data(), config_.data() + offset, into.size());
    note(false, true, 0, offset, into);
  }
  void config_write(std::uint32_t offset, std::span<const std::byte> from) override {
    std::memcpy(config_.data() + offset, from.data(), from.size());
    note(true, true, 0, offset, from);
  }
  void bar_read(unsigned bar, std::uint64_t offset, std::span<std::byte> into) override {
    std::memcpy(into.data(), memory_[bar].data() + offset, into.size());
    note(false, false, bar, offset, into);
  }
  void bar_write(unsigned bar, std::uint64_t offset, std::span<const std::byte> from) override {
    std::memcpy(memory_[bar].data() + offset, from.data(), from.size());
    note(true, false, bar, offset, from);
    if (fire_on_write && sink != nullptr) {
      sink->msix(static_cast<unsigned>(from[0]));
    }
  }

  void set_interrupt_sink(pcie::InterruptSink* to) override { sink = to; }
  void reset() override { ++resets; }

  pcie::MapResult dma_map(Iova iova, std::uint64_t size, pcie::DmaAccess access, std::optional<pcie::FileWindow> window,
                          pcie::MessageMemory* messages) override {
    ++map_calls;
    if (next_map_result != pcie::MapResult::ok) {
      return std::exchange(next_map_result, pcie::MapResult::ok);
    }
    Mapping mapping{size, access, {}, FileDescriptor(), messages};
    if (window) {
      mapping.file_offset = window->offset;
      mapping.file.reset(::fcntl(window->fd, F_DUPFD_CLOEXEC, 0));
      if (!mapping.file) {
        return pcie::MapResult::io_error;
      }
    }
    mappings.emplace(iova.value, std::move(mapping));
    return pcie::MapResult::ok;
  }
  pcie::MapResult dma_unmap(Iova iova, std::uint64_t size) override {
    const auto it = mappings.find(iova.value);
    if (it == mappings.end() || it->second.size != size) {
      return pcie::MapResult::not_found;
    }
    mappings.erase(it);
    return pcie::MapResult::ok;
  }
  void dma_unmap_all() override { mappings.clear(); }
  void disconnect() override {
    ++disconnects;
    sink = nullptr;
    mappings.clear();
  }

  std::vector<std::byte>& memory(unsigned bar) { return memory_[bar]; }
  std::vector<std::byte>& config() { return config_; }
  void set_bar(unsigned bar, pcie::BarDescription description) {
    bars_[bar] = description;
    memory_[bar].resize(description.size);
  }

  bool keep_accesses = true;   // off in benchmarks
  bool fire_on_write = false;  // a BAR write fires the vector of its first byte
  std::vector<Access> accesses;
  pcie::InterruptSink* sink = nullptr;
  std::map<std::uint64_t, Mapping> mappings;
  pcie::MapResult next_map_result = pcie::MapResult::ok;  // what the next dma_map answers
  unsigned resets = 0;
  unsigned disconnects = 0;
  unsigned map_calls = 0;

 private:
  void note(bool write, bool config, unsigned bar, std::uint64_t offset, std::span<const std::byte> data) {
    if (keep_accesses) {
      accesses.push_back({write, config, bar, offset, {data.begin(), data.end()}});
    }
  }

  unsigned vectors_;
  std::array<pcie::BarDescription, pcie::bar_count> bars_;
  std::array<std::vector<std::byte>, pcie::bar_count> memory_;
  std::vector<std::byte> config_;
};

}  // namespace orrery::bridge::test
