// An Ethernet send queue: work requests → frames, in order, a few of them fetched at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "common/event_queue.h"
#include "systemc_models/rnic/ethernet/frame.h"
#include "systemc_models/rnic/verbs/completion_queues.h"
#include "systemc_models/rnic/verbs/core.h"
#include "systemc_models/rnic/verbs/queue_fetcher.h"
#include "systemc_models/rnic/verbs/ring.h"
#include "systemc_models/rnic/verbs/wire.h"

namespace orrery::rnic {

// A large packet on its way to be cut: headers, and the payload that DMA brings.
struct LargePacket {
  static constexpr std::uint32_t max_payload = 1U << 17;
  Segmenter segmenter;
  std::uint32_t header_bytes = 0;
  std::array<std::byte, max_work_request> header{};
  std::vector<std::byte> payload;
};

class LargePacketPool {
 public:
  LargePacket& take() {
    if (free_.empty()) {
      return all_.emplace_back();
    }
    LargePacket& packet = *free_.back();
    free_.pop_back();
    return packet;
  }
  void give_back(LargePacket& packet) { free_.push_back(&packet); }

 private:
  std::deque<LargePacket> all_;
  std::vector<LargePacket*> free_;
};

// What the Ethernet queues share.
struct FrameBlocks {
  Core& core;
  CompletionQueues& cqs;
  Wire& wire;
  LargePacketPool large;
};

class SendQueue final : public Sendable, private QueueFetcher::Owner, private DmaClient, private EventHandler {
 public:
  // Enters the state that the context names; ready from reset (or a new life) starts at index 0.
  ControlResult write(FrameBlocks& blocks, std::uint32_t number, const FrameQueueContext& context);
  [[nodiscard]] const FrameQueueContext& context() const { return context_; }
  [[nodiscard]] bool valid() const { return valid_; }
  void doorbell();
  // Nothing is begun any more.
  void end();
  // The function was reset, its DMA forgotten.
  void forget();
  // Destroyed: as end(), and the number may get a new context when its DMA has drained.
  void retire() {
    end();
    valid_ = false;
    context_.state = FrameQueueState::reset;
  }
  Lifetime life;

 private:
  static constexpr std::uint32_t most_jobs = 32;
  struct Job {
    enum class Kind : std::uint8_t { nothing, frame, large };
    Kind kind = Kind::nothing;
    CompletionCode code = CompletionCode::success;
    bool signalled = false;
    bool fetched = false;  // its data is here
    bool ip_checksum = false;
    bool l4_checksum = false;
    bool insert_vlan = false;
    std::uint8_t raw_opcode = 0;
    std::uint16_t index = 0;
    std::uint16_t vlan_tci = 0;
    std::uint32_t next = 0;  // frame of a large packet
    fabric::ContentHandle content;
    LargePacket* large = nullptr;
  };

  bool transmit_next() override;
  void on_fetched() override { advance(); }
  void on_fetch_failed() override;
  void on_dma(std::uint64_t cookie, bool ok) override;
  void on_event(std::uint64_t argument) override;
  void start();
  // Takes WQEs as long as there is room for their jobs.
  void collect();
  void begin_job(Job& job, std::uint32_t number, std::span<const std::byte> wqe);
  CompletionCode prepare(Job& job, std::uint32_t number, std::span<const std::byte> wqe);
  // Completes what needs no wire, then asks for the wire.
  void advance();
  void send_frame(fabric::ContentHandle content, bool ip, bool l4);
  void complete(Job& job);
  void drop(Job& job);
  void drop_jobs();
  [[nodiscard]] bool quiet() const { return dma_in_flight == 0 && fetcher_.dma_in_flight == 0; }

  FrameBlocks* blocks_ = nullptr;
  std::uint32_t number_ = 0;
  FrameQueueContext context_;
  bool valid_ = false;
  bool leaving_ = false;  // jobs are dropped as their DMA ends
  bool start_when_quiet_ = false;
  bool rung_ = false;  // while it waits to start
  QueueFetcher fetcher_;
  Ring<Job> jobs_;
  FrameWorkRequest request_;
};

}  // namespace orrery::rnic
