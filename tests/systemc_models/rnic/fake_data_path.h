// A data path for tests of firmware and management block: keeps contexts and translation entries as they are
// written, delivers events into real event queues in guest memory, and lets a test decide what drains when.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "systemc_models/rnic/control_plane.h"
#include "systemc_models/rnic/mlx5/queue_format.h"

namespace orrery::test {

class FakeDataPath final : public rnic::DataPath, private pcie::DmaListener {
 public:
  explicit FakeDataPath(rnic::EventSink& sink, std::uint32_t entries = 1U << 22) : sink_(sink), entries_(entries) {}

  using Key = std::pair<rnic::ContextKind, std::uint32_t>;
  std::map<Key, std::vector<std::byte>> contexts;
  std::map<std::uint32_t, std::uint64_t> translation;
  std::set<Key> slow;                                    // destroying these takes until finish() is called
  std::map<std::uint32_t, std::vector<std::byte>> work;  // WQEs that wait for the firmware
  struct Completed {
    std::uint32_t qp;
    rnic::CompletionCode code;
  };
  std::vector<Completed> completed;
  std::vector<std::pair<std::uint32_t, bool>> resumed;  // page faults: token, failed
  std::vector<std::string> doorbells;
  std::uint64_t events = 0;
  std::uint64_t resets = 0;
  bool refuse_writes = false;  // contexts other than functions and EQs

  template <class T>
  [[nodiscard]] T context(rnic::ContextKind kind, std::uint32_t index) const {
    T value;
    const auto found = contexts.find({kind, index});
    EXPECT_NE(found, contexts.end()) << "no context " << static_cast<int>(kind) << " " << index;
    if (found != contexts.end()) {
      EXPECT_EQ(found->second.size(), sizeof(T));
      std::memcpy(static_cast<void*>(&value), found->second.data(), sizeof(T));
    }
    return value;
  }
  [[nodiscard]] bool has(rnic::ContextKind kind, std::uint32_t index) const { return contexts.contains({kind, index}); }
  void finish(rnic::ContextKind kind, std::uint32_t index) {
    slow.erase({kind, index});
    sink_.on_context_idle(kind, index);
  }
  // A WQE that the hardware leaves to the firmware.
  void leave_to_firmware(std::uint32_t function, std::uint32_t qp, std::vector<std::byte> wqe) {
    work[qp] = std::move(wqe);
    sink_.on_hardware_event({rnic::EventCode::work_request, function, qp, 0});
  }
  [[nodiscard]] rnic::EventSink& sink() { return sink_; }

  void attach(std::uint32_t function, pcie::DevicePort& port) override { ports_[function] = &port; }

  rnic::ControlResult write_context(rnic::ContextKind kind, std::uint32_t index,
                                    std::span<const std::byte> bytes) override {
    if (refuse_writes && kind != rnic::ContextKind::function && kind != rnic::ContextKind::eq) {
      return rnic::ControlResult::bad_value;
    }
    contexts[{kind, index}].assign(bytes.begin(), bytes.end());
    if (kind == rnic::ContextKind::eq) {
      queues_[index] = Queue{};
    }
    return rnic::ControlResult::ok;
  }
  rnic::ControlResult read_context(rnic::ContextKind kind, std::uint32_t index, std::span<std::byte> into) override {
    const auto found = contexts.find({kind, index});
    if ((kind == rnic::ContextKind::frame_counters || kind == rnic::ContextKind::queue_counters) &&
        found == contexts.end()) {
      std::fill(into.begin(), into.end(), std::byte{0});
      return rnic::ControlResult::ok;
    }
    if (found == contexts.end()) {
      return rnic::ControlResult::bad_index;
    }
    std::memcpy(into.data(), found->second.data(), std::min(into.size(), found->second.size()));
    return rnic::ControlResult::ok;
  }
  rnic::ControlResult destroy_context(rnic::ContextKind kind, std::uint32_t index) override {
    if (contexts.erase({kind, index}) == 0) {
      return rnic::ControlResult::bad_index;
    }
    return slow.contains({kind, index}) ? rnic::ControlResult::busy : rnic::ControlResult::ok;
  }
  [[nodiscard]] bool idle(rnic::ContextKind kind, std::uint32_t index) override {
    return !slow.contains({kind, index});
  }
  rnic::ControlResult write_translation(std::uint32_t first, std::span<const std::uint64_t> list) override {
    if (first + list.size() > entries_) {
      return rnic::ControlResult::bad_index;
    }
    for (const std::uint64_t entry : list) {
      translation[first++] = entry;
    }
    return rnic::ControlResult::ok;
  }
  // Types no page; remembers whose the last ones were.
  rnic::ControlResult write_pages(std::uint32_t function, std::uint32_t first,
                                  std::span<std::uint64_t> pages) override {
    pages_of = function;
    return write_translation(first, pages);
  }
  std::uint32_t pages_of = rnic::none;
  void set_peer_windows(std::uint32_t function, std::span<const pcie::PeerWindow> windows) override {
    static_cast<void>(function), static_cast<void>(windows);
  }
  rnic::ControlResult read_translation(std::uint32_t first, std::span<std::uint64_t> into) override {
    for (std::uint64_t& entry : into) {
      entry = translation[first++];
    }
    return rnic::ControlResult::ok;
  }
  rnic::ControlResult arm_srq(std::uint32_t srqn, std::uint32_t limit) override {
    rnic::SrqContext context = this->context<rnic::SrqContext>(rnic::ContextKind::srq, srqn);
    context.limit = limit;
    std::memcpy(contexts[{rnic::ContextKind::srq, srqn}].data(), &context, sizeof context);
    return rnic::ControlResult::ok;
  }
  rnic::ControlResult post_event(std::uint32_t function, std::uint32_t eqn, const rnic::Event& event) override {
    const std::uint32_t index = rnic::eq_index(function, eqn);
    if (!contexts.contains({rnic::ContextKind::eq, index})) {
      return rnic::ControlResult::bad_index;
    }
    ++events;
    const auto eq = context<rnic::EqContext>(rnic::ContextKind::eq, index);
    Queue& queue = queues_[index];
    const std::uint64_t offset = (queue.producer % (1U << eq.log_entries)) * 64 + eq.buffer.offset;
    const std::uint64_t page =
        translation[eq.buffer.translation + static_cast<std::uint32_t>(offset >> eq.buffer.page_shift)];
    auto write = std::make_unique<Write>();
    format_.encode_event(event, queue.producer >> eq.log_entries, write->bytes);
    ++queue.producer;
    write->transfer.kind = pcie::DmaTransfer::Kind::write;
    write->transfer.address =
        (page & rnic::translation::address_mask) + (offset & ((std::uint64_t{1} << eq.buffer.page_shift) - 1));
    write->transfer.length = write->bytes.size();
    write->transfer.buffer = write->bytes.data();
    write->transfer.listener = this;
    write->function = function;
    write->index = index;
    writes_.push_back(std::move(write));
    ports_.at(function)->start(writes_.back()->transfer);
    return rnic::ControlResult::ok;
  }
  rnic::ControlResult complete_work_request(std::uint32_t qpn, rnic::CompletionCode code) override {
    if (work.erase(qpn) == 0) {
      return rnic::ControlResult::bad_index;
    }
    completed.push_back({qpn, code});
    return rnic::ControlResult::ok;
  }
  [[nodiscard]] std::span<const std::byte> work_request(std::uint32_t qpn) override {
    const auto found = work.find(qpn);
    return found == work.end() ? std::span<const std::byte>{} : std::span<const std::byte>(found->second);
  }
  rnic::ControlResult resume_fault(std::uint32_t token, bool failed) override {
    resumed.emplace_back(token, failed);
    return contexts.erase({rnic::ContextKind::fault, token}) == 1 ? rnic::ControlResult::ok
                                                                  : rnic::ControlResult::bad_index;
  }
  void reset(std::uint32_t function) override {
    ++resets;
    std::erase_if(contexts, [&](const auto& entry) { return owner(entry.first, entry.second) == function; });
    writes_.clear();
  }

  void ring_send(std::uint32_t function, std::uint32_t uar, std::uint32_t qpn) override {
    doorbells.push_back("send " + std::to_string(function) + " " + std::to_string(uar) + " " + std::to_string(qpn));
  }
  void arm_cq(std::uint32_t function, std::uint32_t uar, std::uint32_t cqn, std::uint32_t consumer, bool solicited,
              std::uint32_t sequence) override {
    doorbells.push_back("cq " + std::to_string(function) + " " + std::to_string(uar) + " " + std::to_string(cqn) + " " +
                        std::to_string(consumer) + " " + std::to_string(solicited) + " " + std::to_string(sequence));
  }
  // Armed and behind: an interrupt at once.
  void update_eq(std::uint32_t function, std::uint32_t uar, std::uint32_t eqn, std::uint32_t consumer,
                 bool arm) override {
    doorbells.push_back("eq " + std::to_string(function) + " " + std::to_string(uar) + " " + std::to_string(eqn) + " " +
                        std::to_string(consumer) + " " + std::to_string(arm));
    const std::uint32_t index = rnic::eq_index(function, eqn);
    if (!contexts.contains({rnic::ContextKind::eq, index})) {
      return;
    }
    Queue& queue = queues_[index];
    queue.armed = arm;
    if (arm && (consumer & 0xff'ffffU) != (queue.written & 0xff'ffffU)) {
      interrupt(function, index);
    }
  }

 private:
  struct Queue {
    std::uint32_t producer = 0;
    std::uint32_t written = 0;
    bool armed = false;
  };
  struct Write {
    pcie::DmaTransfer transfer;
    std::array<std::byte, 64> bytes{};
    std::uint32_t function = 0;
    std::uint32_t index = 0;
  };

  static std::uint32_t owner(const Key& key, const std::vector<std::byte>& bytes) {
    const auto word = [&](std::size_t at) {
      std::uint32_t value = 0;
      std::memcpy(&value, bytes.data() + at, 4);
      return value;
    };
    switch (key.first) {
      case rnic::ContextKind::function:
        return key.second;
      case rnic::ContextKind::address:
        return key.second / rnic::max_addresses;
      case rnic::ContextKind::qp:
        return word(offsetof(rnic::QpContext, function));
      case rnic::ContextKind::mkey:
        return word(offsetof(rnic::MkeyContext, function));
      case rnic::ContextKind::group:
        return 0;
      case rnic::ContextKind::fault:
        return word(offsetof(rnic::FaultRecord, function));
      default:
        return word(4);
    }
  }
  void interrupt(std::uint32_t function, std::uint32_t index) {
    queues_[index].armed = false;
    ports_.at(function)->msix(context<rnic::EqContext>(rnic::ContextKind::eq, index).vector);
  }
  void on_dma_done(pcie::DmaTransfer& transfer) override {
    for (auto it = writes_.begin(); it != writes_.end(); ++it) {
      if (&(*it)->transfer == &transfer) {
        const std::unique_ptr<Write> write = std::move(*it);
        writes_.erase(it);
        Queue& queue = queues_[write->index];
        ++queue.written;
        if (queue.armed && contexts.contains({rnic::ContextKind::eq, write->index})) {
          interrupt(write->function, write->index);
        }
        return;
      }
    }
  }

  rnic::EventSink& sink_;
  std::uint32_t entries_;
  rnic::mlx5::Mlx5QueueFormat format_;
  std::map<std::uint32_t, pcie::DevicePort*> ports_;
  std::map<std::uint32_t, Queue> queues_;
  std::deque<std::unique_ptr<Write>> writes_;
};

}  // namespace orrery::test
