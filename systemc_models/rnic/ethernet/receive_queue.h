// An Ethernet receive queue: frames → receive WQEs, in order.
#pragma once

#include <cstdint>

#include "systemc_models/rnic/ethernet/send_queue.h"
#include "systemc_models/rnic/verbs/receive_queues.h"

namespace orrery::rnic {

class ReceiveQueue final : private ReceiveWaiter, private DmaClient {
 public:
  ControlResult write(FrameBlocks& blocks, ScatterPool& scatters, std::uint32_t number,
                      const FrameQueueContext& context);
  [[nodiscard]] const FrameQueueContext& context() const { return context_; }
  [[nodiscard]] bool valid() const { return valid_; }
  // Frames may be given to it.
  [[nodiscard]] bool takes_frames() const {
    return valid_ && context_.state == FrameQueueState::ready && context_.log_entries != 0;
  }
  // Takes over the content's reference.
  void deliver(const fabric::Packet& packet);
  void end();
  void forget();
  // Destroyed: as end(), and the number may get a new context when its DMA has drained.
  void retire() {
    end();
    valid_ = false;
    context_.state = FrameQueueState::reset;
  }
  Lifetime life;

 private:
  static constexpr std::uint32_t most_waiting = 1024;  // frames, while WQEs are fetched
  struct Job {
    fabric::ContentHandle content;
    std::uint16_t index = 0;
    bool done = false;
    CompletionCode code = CompletionCode::success;
  };

  void on_receive_ready() override { pump(); }
  void on_receive_failed() override;
  void on_dma(std::uint64_t cookie, bool ok) override;
  void start();
  void pump();
  void place(fabric::ContentHandle content, const Scatter& wqe);
  void finish();
  void drop_waiting();
  void drop_all();
  void drop_unbuffered(fabric::ContentHandle content);
  [[nodiscard]] bool quiet() const { return dma_in_flight == 0 && source_.quiet(); }

  FrameBlocks* blocks_ = nullptr;
  ScatterPool* scatters_ = nullptr;
  std::uint32_t number_ = 0;
  FrameQueueContext context_;
  bool valid_ = false;
  bool leaving_ = false;
  bool start_when_quiet_ = false;
  OwnReceiveQueue source_;
  Ring<fabric::ContentHandle> waiting_;
  Ring<Job> jobs_;
};

}  // namespace orrery::rnic
