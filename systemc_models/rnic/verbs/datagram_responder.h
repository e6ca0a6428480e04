// The receiver of UD, SMI and GSI QPs (IBTA §9.8.3): one packet is one message; 40 bytes of network header precede it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "systemc_models/rnic/verbs/responder.h"
#include "systemc_models/rnic/verbs/ring.h"

namespace orrery::rnic {

// Bytes of GRH, or of 20 bytes of padding and the IPv4 header, before a datagram (IBTA A17.4.5.1).
inline constexpr std::uint32_t datagram_header_bytes = 40;

class DatagramResponder final : public Responder {
 public:
  explicit DatagramResponder(QueuePair& qp) : Responder(qp) {}

  void start_connection() override {}
  void on_request(const fabric::Packet& packet, const fabric::PacketContent& content) override;

 private:
  struct Message {
    Scatter* wqe = nullptr;
    Completion completion;
    fabric::ContentHandle staging;  // header and payload
    bool done = false;
  };
  static constexpr std::size_t max_held = 64;

  void stop() override;
  void release_receives(bool completes) override;
  void receive_ready() override;
  void on_dma(std::uint64_t cookie, bool ok) override;
  void complete_messages();

  Ring<Message> messages_;  // receive WQEs complete in their order
  std::vector<fabric::Packet> held_;
};

}  // namespace orrery::rnic
