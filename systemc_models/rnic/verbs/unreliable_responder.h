// The receiver of UC QPs (IBTA §9.8.2): packets in order or not at all; a message with a gap is dropped silently.
#pragma once

#include <cstdint>
#include <vector>

#include "fabric/transport/psn.h"
#include "systemc_models/rnic/verbs/responder.h"
#include "systemc_models/rnic/verbs/ring.h"

namespace orrery::rnic {

class UnreliableResponder final : public Responder {
 public:
  explicit UnreliableResponder(QueuePair& qp) : Responder(qp) {}

  void start_connection() override;
  void on_request(const fabric::Packet& packet, const fabric::PacketContent& content) override;
  void forget_dma() override;
  [[nodiscard]] std::uint32_t expected_psn() const override { return expected_.value; }

 private:
  // A message, from its first packet until its DMA has ended and those before it have completed.
  struct Message {
    Scatter* wqe = nullptr;
    std::uint32_t placing = 0;
    bool whole = false;    // its last packet has come
    bool dropped = false;  // it will never be whole
    CompletionCode code = CompletionCode::success;
    bool completes = false;  // it has a CQE
    Completion completion;
  };
  struct Placing {
    fabric::ContentHandle content;
    std::uint32_t message = 0;
    std::uint32_t next_free = none;
  };
  static constexpr std::size_t max_held = 256;

  void stop() override;
  void release_receives(bool completes) override;
  void receive_ready() override;
  void on_dma(std::uint64_t cookie, bool ok) override;
  void handle(const fabric::Packet& packet, const fabric::PacketContent& content);
  bool take_receive(const fabric::Packet& packet, Message& message, bool& held);
  void drop_message();
  void complete_messages();

  fabric::Psn expected_;
  bool in_message_ = false;  // the newest of messages_ goes on
  bool is_write_ = false;
  std::uint64_t offset_ = 0;
  std::uint64_t address_ = 0;
  std::uint32_t rkey_ = 0;
  std::uint64_t length_ = 0;  // of a WRITE
  Scatter* spare_ = nullptr;  // WQE of a dropped message, for the next one
  Ring<Message> messages_;
  std::vector<Placing> placing_;
  std::uint32_t free_placing_ = none;
  std::vector<fabric::Packet> held_;
};

}  // namespace orrery::rnic
