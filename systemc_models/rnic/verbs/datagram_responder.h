// The receiver of UD, SMI and GSI QPs (IBTA §9.8.3): one packet is one message; 40 bytes of network header precede it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "systemc_models/rnic/verbs/responder.h"

namespace orrery::rnic {

// Bytes of GRH, or of 20 bytes of padding and the IPv4 header, before a datagram (IBTA A17.4.5.1).
inline constexpr std::uint32_t datagram_header_bytes = 40;

class DatagramResponder final : public Responder {
 public:
  explicit DatagramResponder(QueuePair& qp) : Responder(qp) {}

  void start_connection() override {}
  void on_request(const fabric::Packet& packet, const fabric::PacketContent& content) override;
  void forget_dma() override;

 private:
  struct Message {
    Scatter* wqe = nullptr;
    Completion completion;
    fabric::ContentHandle staging;  // header and payload
    std::uint32_t next_free = none;
  };
  static constexpr std::size_t max_held = 64;

  void stop() override;
  void release_receives(bool completes) override;
  void receive_ready() override;
  void on_dma(std::uint64_t cookie, bool ok) override;
  void fail(Scatter& wqe, CompletionCode code);

  std::vector<Message> messages_;
  std::uint32_t free_message_ = none;
  std::vector<fabric::Packet> held_;
};

}  // namespace orrery::rnic
