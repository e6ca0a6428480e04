// A bus in memory for tests of device models: sparse host memory, BARs of other models, injectable failures
// and delays. It keeps DevicePort's contract and fails the test when a model breaks its side of it.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "common/address.h"
#include "pcie/device.h"

namespace orrery::test {

constexpr std::uint64_t page_bytes = 4096;

class FakePort;

class FakeBus {
 public:
  explicit FakeBus(bool timed = false) { simulation.timed = timed; }

  pcie::Simulation simulation;
  // Every transfer ends after a delay drawn from [0, max_delay] ps, so that transfers finish out of order.
  std::uint64_t max_delay = 0;
  std::mt19937_64 random{1};

  // A page that no access reaches.
  void break_page(std::uint64_t address) { broken_.insert(address / page_bytes); }
  void mend_page(std::uint64_t address) { broken_.erase(address / page_bytes); }
  [[nodiscard]] bool broken(std::uint64_t address) const { return broken_.contains(address / page_bytes); }
  // [base, base + size) leads to a memory BAR of `port`'s model.
  void map_bar(std::uint64_t base, std::uint64_t size, FakePort& port, unsigned bar) {
    bars_.push_back({base, size, &port, bar});
  }

  void write(std::uint64_t address, const void* from, std::uint64_t size) {
    copy(address, size, [&](std::byte* at, std::uint64_t done, std::uint64_t n) {
      std::memcpy(at, static_cast<const std::byte*>(from) + done, n);
    });
  }
  void read(std::uint64_t address, void* into, std::uint64_t size) {
    copy(address, size, [&](std::byte* at, std::uint64_t done, std::uint64_t n) {
      std::memcpy(static_cast<std::byte*>(into) + done, at, n);
    });
  }
  void write(std::uint64_t address, const std::vector<std::byte>& from) { write(address, from.data(), from.size()); }
  [[nodiscard]] std::vector<std::byte> read(std::uint64_t address, std::uint64_t size) {
    std::vector<std::byte> bytes(size);
    read(address, bytes.data(), size);
    return bytes;
  }
  // Called before each event: what works outside of simulated time (a firmware in another process) comes to rest in
  // here.
  std::function<void()> before_event;
  // One event; false: there is none.
  bool step() {
    if (before_event) {
      before_event();
    }
    return simulation.events.run_one();
  }
  // Runs until nothing is left to do; fails the test if that takes more than `limit` events.
  void run(std::uint64_t limit = 10'000'000) {
    for (std::uint64_t i = 0; i < limit; ++i) {
      if (!step()) {
        return;
      }
    }
    ADD_FAILURE() << "still busy after " << limit << " events";
  }
  [[nodiscard]] std::vector<std::byte> random_bytes(std::uint64_t size) {
    std::vector<std::byte> bytes(size);
    for (std::uint64_t done = 0; done < size; done += 8) {
      const std::uint64_t word = random();
      std::memcpy(bytes.data() + done, &word, std::min<std::uint64_t>(8, size - done));
    }
    return bytes;
  }
  [[nodiscard]] std::uint64_t uniform(std::uint64_t low, std::uint64_t high) {
    return std::uniform_int_distribution<std::uint64_t>(low, high)(random);
  }

 private:
  friend class FakePort;
  struct Bar {
    std::uint64_t base;
    std::uint64_t size;
    FakePort* port;
    unsigned bar;
  };
  [[nodiscard]] const Bar* bar_at(std::uint64_t address) const {
    for (const Bar& bar : bars_) {
      if (address >= bar.base && address - bar.base < bar.size) {
        return &bar;
      }
    }
    return nullptr;
  }
  std::byte* host_page(std::uint64_t page) {
    auto& bytes = host_[page];
    if (bytes == nullptr) {
      bytes = std::make_unique<std::array<std::byte, page_bytes>>();
      bytes->fill(std::byte{0});
    }
    return bytes->data();
  }
  [[nodiscard]] std::byte* at(std::uint64_t address, std::uint64_t size);
  template <class Piece>
  void copy(std::uint64_t address, std::uint64_t size, Piece piece) {
    for (std::uint64_t done = 0; done < size;) {
      const std::uint64_t n = std::min(page_bytes - (address + done) % page_bytes, size - done);
      piece(at(address + done, n), done, n);
      done += n;
    }
  }

  std::map<std::uint64_t, std::unique_ptr<std::array<std::byte, page_bytes>>> host_;
  std::set<std::uint64_t> broken_;
  std::vector<Bar> bars_;
};

class FakePort final : public pcie::DevicePort, private EventHandler {
 public:
  FakePort(FakeBus& bus, pcie::DeviceModel& model) : bus_(bus), model_(model) { model.attach(*this); }

  // Interrupts in the order in which they came.
  std::vector<unsigned> interrupts;
  std::uint64_t largest_transfer = 0;
  std::size_t most_in_flight = 0;
  std::uint64_t confirmed_writes = 0;
  std::uint64_t unconfirmed_writes = 0;
  std::uint64_t started = 0;
  [[nodiscard]] std::size_t in_flight() const { return in_flight_.size(); }
  [[nodiscard]] pcie::DeviceModel& model() { return model_; }

  void start(pcie::DmaTransfer& transfer) override {
    ASSERT_NE(transfer.listener, nullptr);
    ASSERT_NE(transfer.buffer, nullptr);
    ASSERT_TRUE(range_is_valid(transfer.address, transfer.length));
    ASSERT_EQ(transfer.at, pcie::AddressType::untranslated);
    for (const auto& [id, other] : in_flight_) {
      ASSERT_NE(other, &transfer) << "a transfer was started twice";
    }
    transfer.status = pcie::CompletionStatus::success;
    transfer.started = bus_.simulation.now();
    transfer.latency.clear();
    ++started;
    largest_transfer = std::max(largest_transfer, transfer.length);
    if (transfer.kind == pcie::DmaTransfer::Kind::write) {
      ++(transfer.confirm ? confirmed_writes : unconfirmed_writes);
    }
    in_flight_.emplace(++last_id_, &transfer);
    most_in_flight = std::max(most_in_flight, in_flight_.size());
    const Picoseconds delay{bus_.max_delay == 0 ? 0 : bus_.uniform(0, bus_.max_delay)};
    bus_.simulation.events.schedule(bus_.simulation.now() + delay, *this, last_id_);
  }
  void cancel_all() override { in_flight_.clear(); }
  void msix(unsigned vector) override {
    interrupts.push_back(vector);
    ++counters_.msix_sent;
    counters_.write_bytes_sent += 4;
  }
  [[nodiscard]] const pcie::PortCounters& counters() const override { return counters_; }
  [[nodiscard]] pcie::Simulation& simulation() override { return bus_.simulation; }

  // The driver's side: register accesses.
  [[nodiscard]] std::uint32_t read32(std::uint64_t offset) {
    std::uint32_t value = 0;
    model_.bar_read(0, offset, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  [[nodiscard]] std::uint64_t read64(std::uint64_t offset) {
    std::uint64_t value = 0;
    model_.bar_read(0, offset, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  void write32(std::uint64_t offset, std::uint32_t value) {
    model_.bar_write(0, offset, std::as_bytes(std::span(&value, 1)));
  }
  void write64(std::uint64_t offset, std::uint64_t value) {
    model_.bar_write(0, offset, std::as_bytes(std::span(&value, 1)));
  }

 private:
  void on_event(std::uint64_t id) override {
    const auto found = in_flight_.find(id);
    if (found == in_flight_.end()) {
      return;  // cancelled
    }
    pcie::DmaTransfer& transfer = *found->second;
    in_flight_.erase(found);
    carry_out(transfer);
    transfer.finished = bus_.simulation.now();
    transfer.listener->on_dma_done(transfer);
  }
  // Page by page, as TLPs would: a broken page fails, the others are reached all the same.
  void carry_out(pcie::DmaTransfer& t) {
    const bool write = t.kind == pcie::DmaTransfer::Kind::write;
    (write ? counters_.write_bytes_sent : counters_.read_bytes_requested) += t.length;
    for (std::uint64_t done = 0; done < t.length;) {
      const std::uint64_t address = t.address + done;
      const std::uint64_t n = std::min(page_bytes - address % page_bytes, t.length - done);
      if (bus_.broken(address)) {
        if (t.status == pcie::CompletionStatus::success && (!write || t.confirm)) {
          t.status = pcie::CompletionStatus::completer_abort;
          t.failed_address = address;
          ++counters_.errors;
        }
      } else {
        std::byte* at = bus_.at(address, n);
        std::memcpy(write ? at : t.buffer + done, write ? t.buffer + done : at, n);
        if (!write) {
          counters_.completion_bytes_received += n;
        }
        if (const FakeBus::Bar* bar = bus_.bar_at(address); bar != nullptr) {
          pcie::PortCounters& peer = bar->port->counters_;
          (write ? peer.write_bytes_received : peer.completion_bytes_sent) += n;
        }
      }
      done += n;
    }
    t.latency.add(7).serialise = static_cast<std::uint32_t>(t.length);
  }

  friend class FakeBus;
  FakeBus& bus_;
  pcie::DeviceModel& model_;
  std::map<std::uint64_t, pcie::DmaTransfer*> in_flight_;
  std::uint64_t last_id_ = 0;
  pcie::PortCounters counters_;
};

inline std::byte* FakeBus::at(std::uint64_t address, std::uint64_t size) {
  const Bar* bar = bar_at(address);
  if (bar == nullptr) {
    return host_page(address / page_bytes) + address % page_bytes;
  }
  const auto bytes = bar->port->model_.bar_memory(bar->bar, address - bar->base, size);
  EXPECT_EQ(bytes.size(), size);
  return bytes.data();
}

}  // namespace orrery::test
