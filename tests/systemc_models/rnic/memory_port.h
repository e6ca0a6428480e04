// What the data path stands on in tests and benchmarks: guest memory as plain bytes behind a DevicePort, and a
// wire between two engines that can lose, repeat and reorder packets. No GoogleTest in here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <unordered_set>
#include <vector>

#include "fabric/packet_pool.h"
#include "fabric/port.h"
#include "pcie/device.h"

namespace orrery::test {

// [base, base + size) is guest memory. Device memory (AT = 10b) is a second array, from 0 on.
class MemoryPort final : public pcie::DevicePort, private EventHandler {
 public:
  static constexpr std::uint64_t base = 0x1'0000'0000;

  MemoryPort(pcie::Simulation& simulation, std::size_t bytes, std::size_t device_bytes = 1U << 16)
      : simulation_(simulation),
        size_(bytes),
        device_size_(device_bytes),
        memory_(static_cast<std::byte*>(std::calloc(bytes, 1)), &std::free),
        device_(static_cast<std::byte*>(std::calloc(device_bytes, 1)), &std::free) {}

  // Transfers end after up to so many picoseconds, out of order.
  std::uint64_t max_delay = 0;
  std::mt19937_64 random{1};
  std::vector<unsigned> interrupts;
  std::set<std::uint64_t> broken;  // 4 KiB pages (address / 4096) that no access reaches
  std::uint64_t transfers = 0;
  std::uint64_t translated = 0;  // transfers with AT = 10b
  std::uint64_t stray = 0;       // accesses outside of memory: a bug of the engine or of the test

  [[nodiscard]] std::byte* at(std::uint64_t address) { return memory_.get() + (address - base); }
  [[nodiscard]] std::byte* device_at(std::uint64_t address) { return device_.get() + address; }
  [[nodiscard]] std::uint64_t end() const { return base + size_; }

  void start(pcie::DmaTransfer& t) override {
    ++transfers;
    t.status = pcie::CompletionStatus::success;
    if (max_delay == 0) {
      ready_.push_back(&t);
      if (ready_.size() == 1) {
        simulation_.events.schedule(simulation_.now(), *this, 0);
      }
      return;
    }
    flying_.insert(&t);
    simulation_.events.schedule(simulation_.now() + Picoseconds{random() % max_delay}, *this,
                                reinterpret_cast<std::uintptr_t>(&t));
  }
  void cancel_all() override {
    ready_.clear();
    flying_.clear();
  }
  void msix(unsigned vector) override { interrupts.push_back(vector); }
  [[nodiscard]] const pcie::PortCounters& counters() const override { return counters_; }
  [[nodiscard]] pcie::Simulation& simulation() override { return simulation_; }

 private:
  void on_event(std::uint64_t argument) override {
    if (argument != 0) {
      auto* t = reinterpret_cast<pcie::DmaTransfer*>(static_cast<std::uintptr_t>(argument));
      if (flying_.erase(t) != 0) {
        carry_out(*t);
        t->listener->on_dma_done(*t);
      }
      return;
    }
    std::swap(ready_, doing_);
    for (std::size_t i = 0; i < doing_.size(); ++i) {
      carry_out(*doing_[i]);
      doing_[i]->listener->on_dma_done(*doing_[i]);
    }
    doing_.clear();
  }
  void carry_out(pcie::DmaTransfer& t) {
    std::byte* memory = nullptr;
    if (t.at == pcie::AddressType::translated) {
      ++translated;
      memory = t.address + t.length <= device_size_ ? device_at(t.address) : nullptr;
    } else {
      memory = t.address >= base && t.length <= size_ && t.address - base <= size_ - t.length ? at(t.address) : nullptr;
      if (!broken.empty()) {
        for (std::uint64_t page = t.address / 4096; page <= (t.address + t.length - 1) / 4096; ++page) {
          if (broken.contains(page)) {
            t.status = pcie::CompletionStatus::unsupported_request;
            return;
          }
        }
      }
    }
    if (memory == nullptr) {
      ++stray;
      t.status = pcie::CompletionStatus::unsupported_request;
      return;
    }
    if (t.kind == pcie::DmaTransfer::Kind::read) {
      std::memcpy(t.buffer, memory, t.length);
    } else {
      std::memcpy(memory, t.buffer, t.length);
    }
  }

  pcie::Simulation& simulation_;
  std::size_t size_;
  std::size_t device_size_;
  std::unique_ptr<std::byte, decltype(&std::free)> memory_;
  std::unique_ptr<std::byte, decltype(&std::free)> device_;
  std::vector<pcie::DmaTransfer*> ready_;
  std::vector<pcie::DmaTransfer*> doing_;
  std::unordered_set<pcie::DmaTransfer*> flying_;
  pcie::PortCounters counters_;
};

// One end of a wire without bandwidth limit.
class DirectPort final : public fabric::Port, private EventHandler {
 public:
  DirectPort(pcie::Simulation& simulation, fabric::PacketPool& pool) : simulation_(simulation), pool_(pool) {}
  static void connect(DirectPort& a, DirectPort& b) {
    a.peer_ = &b;
    b.peer_ = &a;
  }

  // Flight time, plus up to `jitter`, which reorders.
  Picoseconds delay;
  std::uint64_t jitter = 0;
  std::mt19937_64 random{2};
  // How many times a packet arrives: 0 loses it. It may be altered.
  std::function<unsigned(fabric::Packet&)> fate;
  std::uint64_t sent = 0;

  Picoseconds send_after(const fabric::Packet& packet, Picoseconds later) override {
    static_cast<void>(later);
    ++sent;
    fabric::Packet copy = packet;
    const unsigned times = fate ? fate(copy) : 1;
    for (unsigned i = 1; i < times; ++i) {
      pool_.add_reference(copy.content);
    }
    if (times == 0) {
      pool_.release(copy.content);
      return simulation_.now();
    }
    for (unsigned i = 0; i < times; ++i) {
      if (delay.count == 0 && jitter == 0) {
        ready_.push_back(copy);
        if (ready_.size() == 1) {
          simulation_.events.schedule(simulation_.now(), *this, ~std::uint64_t{0});
        }
      } else {
        std::uint64_t slot = flying_.size();
        if (!free_.empty()) {
          slot = free_.back();
          free_.pop_back();
          flying_[slot] = copy;
        } else {
          flying_.push_back(copy);
        }
        const Picoseconds extra{jitter == 0 ? 0 : random() % jitter};
        simulation_.events.schedule(simulation_.now() + delay + extra, *this, slot);
      }
    }
    return simulation_.now();
  }
  [[nodiscard]] Picoseconds free_at() const override { return {}; }
  void notify_when_free() override {}
  void attach(fabric::PortListener& listener) override { listener_ = &listener; }

 private:
  void on_event(std::uint64_t argument) override {
    if (argument != ~std::uint64_t{0}) {
      const fabric::Packet packet = flying_[argument];
      free_.push_back(argument);
      deliver(packet);
      return;
    }
    std::swap(ready_, doing_);
    for (std::size_t i = 0; i < doing_.size(); ++i) {
      deliver(doing_[i]);
    }
    doing_.clear();
  }
  void deliver(const fabric::Packet& packet) {
    if (peer_ != nullptr && peer_->listener_ != nullptr) {
      peer_->listener_->on_packet(packet);
    } else {
      pool_.release(packet.content);
    }
  }

  pcie::Simulation& simulation_;
  fabric::PacketPool& pool_;
  DirectPort* peer_ = nullptr;
  fabric::PortListener* listener_ = nullptr;
  std::vector<fabric::Packet> ready_;
  std::vector<fabric::Packet> doing_;
  std::deque<fabric::Packet> flying_;
  std::vector<std::uint64_t> free_;
};

}  // namespace orrery::test
