// The responder of RC and XRC (IBTA §9.7): data is placed as it arrives, in whatever order; what a guest or peer can
// see of the order (completions, READs, atomics, negative acknowledges) happens in the order of PSNs.
//
// A packet counts as arrived, and may be acknowledged, once its DMA has ended: an acknowledge means that the data is
// in memory, and memory that went away is a remote operational error at the peer.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/transport/reliable_receiver.h"
#include "systemc_models/rnic/verbs/responder.h"
#include "systemc_models/rnic/verbs/ring.h"

namespace orrery::rnic {

class ReliableResponder final : public Responder, public Sendable, private fabric::ReceiverHost, private AtomicClient {
 public:
  explicit ReliableResponder(QueuePair& qp) : Responder(qp) {}
  ~ReliableResponder() override;

  void start_connection() override;
  void on_request(const fabric::Packet& packet, const fabric::PacketContent& content) override;
  void forget_dma() override;
  [[nodiscard]] bool quiet() const override;
  bool resume_fault(bool failed) override;
  [[nodiscard]] std::uint32_t expected_psn() const override;
  bool transmit_next() override;

 private:
  struct Receive {
    Scatter* wqe = nullptr;  // null: not taken from the queue yet
    std::uint32_t srq = none;
    std::uint32_t pd = 0;
  };
  // What happens when everything up to `psn` has arrived.
  struct Action {
    enum class Kind : std::uint8_t { receive, read, atomic } kind = Kind::receive;
    bool solicited = false;
    bool compares = false;  // atomic
    CompletionKind completion = CompletionKind::receive;
    fabric::Psn psn;
    std::uint32_t receive = 0;  // number in receives_
    std::uint32_t bytes = 0;
    std::uint32_t immediate = 0;
    std::uint32_t rkey = 0;
    std::uint32_t packets = 1;
    std::uint64_t address = 0;
    std::uint64_t swap_add = 0;
    std::uint64_t compare = 0;
    std::uint16_t entropy = 0;
  };
  struct Placing {
    fabric::ContentHandle content;
    fabric::DataArrival arrival;
    std::uint32_t receive = 0;
    bool to_receive = false;
    std::uint32_t next_free = none;
  };
  // The first thing that went wrong, by PSN; said once everything before it is done.
  struct Failure {
    bool set = false;
    fabric::Psn psn;
    std::uint8_t syndrome = 0;
    QpErrorCause cause = QpErrorCause::local;
    CompletionCode code = CompletionCode::success;  // of the receive WQE, if it is to complete
    std::uint32_t receive = 0;
  };
  struct Response {
    fabric::Psn psn;
    std::uint64_t address = 0;
    std::uint32_t rkey = 0;
    std::uint32_t length = 0;
    std::uint32_t packets = 1;
    std::uint32_t made = 0;
    std::uint16_t entropy = 0;
  };
  struct Prepared {
    fabric::ContentHandle content;
    std::uint16_t entropy = 0;
    bool ready = false;
  };
  struct Replay {
    bool set = false;
    fabric::Psn psn;
    std::uint64_t original = 0;
  };
  static constexpr std::uint32_t max_open_receives = 4096;
  static constexpr std::size_t max_held = 256;
  static constexpr std::uint32_t max_actions = 1U << 14;
  static constexpr std::uint32_t max_responses = 256;
  static constexpr std::uint32_t max_prepared = 32;
  // Cookies of DMA: one of these, and an index.
  static constexpr std::uint64_t placing_tag = std::uint64_t{1} << 32;
  static constexpr std::uint64_t response_tag = std::uint64_t{2} << 32;

  // reliable_responder.cpp: arrival, order. reliable_placement.cpp: placement.
  void stop() override;
  void release_receives(bool completes) override;
  void receive_ready() override;
  void on_dma(std::uint64_t cookie, bool ok) override;
  void on_fresh(const fabric::Packet& packet, const fabric::PacketContent& content, const fabric::DataArrival& arrival,
                std::uint32_t skipped = 0);
  [[nodiscard]] std::uint32_t known_responses(const fabric::DataArrival& arrival) const;
  bool place_send(const fabric::Packet& packet, const fabric::PacketContent& content,
                  const fabric::DataArrival& arrival, std::uint32_t receive);
  bool place_write(const fabric::Packet& packet, const fabric::PacketContent& content,
                   const fabric::DataArrival& arrival);
  enum class Ensure : std::uint8_t { ready, wait, refused };
  Ensure ensure_receive(const fabric::PacketContent& content, fabric::Psn psn, std::uint32_t& receive);
  void hold(const fabric::Packet& packet);
  void insert(const Action& action);
  void arrived(const fabric::DataArrival& arrival);
  void run_actions();
  bool run_receive(const Action& action);
  void fail_at(const Failure& failure);
  void check_failure();
  void fault_at(fabric::Psn psn, std::uint32_t key, std::uint64_t address, std::uint32_t packet_bytes,
                std::uint32_t length, std::uint32_t flags);
  std::uint32_t take_placing();
  [[nodiscard]] bool arriving(fabric::Psn psn) const;
  void set_arriving(fabric::Psn psn, bool value);

  // reliable_responses.cpp: acknowledges, READ responses, atomics.
  void send_ack(const fabric::AckInfo& info) override;
  void send_nak(fabric::Psn psn, std::uint8_t syndrome);
  void on_duplicate(const fabric::Packet& packet, const fabric::PacketContent& content,
                    const fabric::DataArrival& arrival);
  void run_read(const Action& action);
  void run_atomic(const Action& action);
  void on_atomic(std::uint64_t original, bool ok) override;
  void send_atomic(fabric::Psn psn, std::uint64_t original, std::uint16_t entropy);
  void respond(const Response& response);
  void make_responses();
  bool make_response(Response& response);
  [[nodiscard]] fabric::ContentHandle make_reply(fabric::RoceOperation operation, fabric::Psn psn);
  [[nodiscard]] bool responding() const { return !responses_.empty() || !prepared_.empty() || atomics_in_flight != 0; }

  std::unique_ptr<fabric::ReliableReceiver> receiver_;
  std::vector<std::uint64_t> arriving_;  // ring by PSN: DMA is on the way
  std::uint32_t arriving_mask_ = 0;
  fabric::Psn next_seen_;   // after the last that has come, whether it is placed yet or not
  Ring<Receive> receives_;  // numbered as the peer does, modulo 2^24
  Ring<Action> actions_;    // by PSN
  std::vector<Placing> placing_;
  std::uint32_t free_placing_ = none;
  std::vector<fabric::Packet> held_;  // wait for receive WQEs
  Failure failure_;
  std::uint32_t msn_ = 0;
  bool established_ = false;
  bool running_ = false;
  bool fault_denied_ = false;  // the firmware could not bring the page
  std::uint32_t denied_key_ = 0;

  Ring<Response> responses_;
  Ring<Prepared> prepared_;
  Action atomic_;  // being executed
  std::array<Replay, 128> replays_{};
  std::uint32_t next_replay_ = 0;
};

}  // namespace orrery::rnic
