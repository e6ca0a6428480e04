// The sending side of a QP: executes its send queue.
//
// WQE → slot (what its completion needs) → packets whose payload is gathered by DMA, several at once → the wire, in
// order, as window and transmitter allow → acknowledges and responses → completions in the order of the queue.
// IBTA chapters 9.7 (reliable), 9.8 (unreliable, datagrams), 10.7 (order of operations, fences).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "fabric/transport/reliable_sender.h"
#include "systemc_models/rnic/verbs/queue_fetcher.h"
#include "systemc_models/rnic/verbs/queue_pair.h"
#include "systemc_models/rnic/verbs/ring.h"

namespace orrery::rnic {

class Requester final : public Sendable,
                        private EngineUser,
                        private QueueFetcher::Owner,
                        private fabric::SenderHost,
                        private DmaClient {
 public:
  explicit Requester(QueuePair& qp) : qp_(qp), core_(qp.blocks.core) {}
  ~Requester() override;

  // reset → init: the queue can be rung. rtr → rts: the connection begins at context.send_psn.
  void begin();
  void start_connection();
  // rts, or back to it: looks for work. `afresh`: a former error is over.
  void resume(bool afresh);
  void doorbell();
  // error, sqe: what is under way ends, then everything is flushed.
  void enter_error();
  // reset, destruction.
  void abandon();
  [[nodiscard]] bool quiet() const;
  void forget_dma();
  // sqd: nothing is under way.
  [[nodiscard]] bool drained() const { return slots_.empty(); }

  void on_acknowledge(const fabric::PacketContent& content);
  void on_response(const fabric::Packet& packet, const fabric::PacketContent& content);

  // Work requests left to the firmware.
  [[nodiscard]] std::span<const std::byte> work_request() const;
  bool complete_work_request(CompletionCode code);
  // Page faults. False: there is none.
  bool resume_fault(bool failed);
  [[nodiscard]] bool faulted() const { return fault_.token != none; }
  [[nodiscard]] const FaultRecord& fault() const { return fault_; }
  [[nodiscard]] std::uint32_t next_psn() const;

  bool transmit_next() override;

 private:
  // A WQE from decoding to completion.
  struct Slot {
    SendOpcode opcode = SendOpcode::nop;
    std::uint8_t raw_opcode = 0;
    bool signalled = false;
    bool sent = false;    // its last packet has left, `last` is known; or nothing had to be sent
    bool failed = false;  // completes with `code` as soon as it is the oldest
    CompletionCode code = CompletionCode::success;
    std::uint16_t index = 0;
    bool on_wire = false;  // first and last are PSNs
    fabric::Psn first;
    fabric::Psn last;
    std::uint32_t placing = 0;  // responses whose DMA is on the way
    std::uint64_t length = 0;
    std::uint64_t remote_address = 0;  // READ: for asking again
    std::uint32_t remote_key = 0;
    std::uint32_t srq = none;
    std::uint32_t message = 0;
    Scatter* scatter = nullptr;  // READ, atomic: where the response goes
  };
  // A packet being gathered, or a request that waits for its turn.
  struct Prepared {
    fabric::ContentHandle content;  // empty: a READ, whose requests are made as they are sent
    std::uint32_t slot = 0;
    std::uint32_t wire_bytes = 0;
    std::uint32_t asked = 0;  // READ: responses requested so far
    bool ready = false;
    bool last = false;  // of its message
    bool local = false;
    std::uint16_t port = 0;  // datagrams: UDP source port
    bool failed = false;
  };
  struct Outstanding {
    fabric::ContentHandle content;  // empty: a response of a READ
    std::uint32_t slot = 0;
    bool response = false;
  };
  static constexpr std::uint32_t max_prepared = 64;
  static constexpr std::uint32_t max_read_chunk = 64;  // responses asked for by one request
  static constexpr std::uint32_t max_slots = 4096;

  // requester.cpp: the queue.
  void on_fetched() override;
  void on_fetch_failed() override;
  void on_send_engine() override { pump(); }
  void pump();
  bool start_next();
  bool admit();
  void fail_slot(std::uint32_t number, CompletionCode code);
  void fail_current(CompletionCode code);
  void complete_slots();
  void post(const Slot& slot, CompletionCode code);
  void flush();
  void drop_packets();
  void fatal();
  void queue_error();
  void hand_to_firmware(std::span<const std::byte> wqe);

  // requester_packets.cpp: from work requests to packets.
  bool produce();
  bool produce_packet();
  void wait_for_page(const DataEntry& entry, std::uint64_t within, std::uint64_t piece, std::uint32_t packet_length,
                     std::uint64_t committed);
  bool response_pages_present();
  bool gather(std::uint32_t bytes, std::byte* into, std::uint64_t cookie, bool& pending);
  void gather_inline(std::uint32_t bytes, std::byte* into) const;
  [[nodiscard]] fabric::ContentHandle make_packet(std::uint64_t offset, std::uint32_t bytes, bool first, bool last);
  void advance_cursor(std::uint32_t bytes);
  bool transmit_data(Prepared& prepared);
  bool transmit_read(Prepared& prepared);
  fabric::ContentHandle make_read(const Slot& slot, std::uint64_t offset, std::uint64_t bytes);
  void pop_prepared();
  void transmit(fabric::Psn psn, std::uint16_t entropy, unsigned attempt, std::uint32_t packets) override;

  // requester_responses.cpp: what comes back.
  void acknowledged(fabric::Psn upto) override;
  void window_opened() override;
  void failed(fabric::SendFailure reason) override;
  void count_timeouts();
  void on_dma(std::uint64_t cookie, bool ok) override;
  void place_response(const fabric::Packet& packet, const fabric::PacketContent& content, std::uint32_t slot,
                      std::uint64_t offset);
  void place_atomic(std::uint32_t slot, std::uint64_t original);
  bool scatter(const Slot& slot, std::uint64_t offset, std::span<const std::byte> bytes, std::uint64_t cookie);
  [[nodiscard]] Slot* slot_of(fabric::Psn psn);

  [[nodiscard]] bool running() const { return qp_.state() == QpState::rts || qp_.state() == QpState::sqd; }
  [[nodiscard]] std::uint32_t mtu() const { return qp_.context.mtu; }

  QueuePair& qp_;
  Core& core_;
  QueueFetcher fetcher_;
  std::unique_ptr<fabric::ReliableSender> sender_;

  // The WQE being turned into packets.
  SendWorkRequest current_;
  bool decoded_ = false;  // current_ waits to be admitted
  bool active_ = false;   // current_ is being turned into packets
  bool halted_ = false;   // a local error: nothing is started any more
  bool blocked_ = false;  // the firmware has the WQE in work_request_
  bool pumping_ = false;
  bool flushing_ = false;
  bool abandoned_ = false;    // nothing completes any more
  std::uint64_t offset_ = 0;  // bytes of current_ in packets so far
  std::uint32_t entry_ = 0;   // cursor in its list
  std::uint64_t entry_offset_ = 0;
  std::uint32_t current_slot_ = 0;
  std::optional<Route> datagram_route_;
  std::array<std::byte, max_work_request> wqe_;  // inline data, or the firmware's work request
  std::uint32_t wqe_bytes_ = 0;
  FaultRecord fault_;

  Ring<Slot> slots_;
  Ring<Prepared> prepared_;
  Ring<Outstanding> outstanding_;  // by PSN, from outstanding_first_
  Ring<fabric::Psn> requests_;     // last PSN of each READ or atomic request that is not answered
  fabric::Psn outstanding_first_;
  std::uint64_t timeouts_counted_ = 0;  // of the sender's, in the queue counters already
  fabric::Psn unreliable_psn_;
  std::uint32_t message_ = 0;
  std::uint32_t receive_ = 0;
  std::uint32_t reads_ = 0;  // slots of READs and atomics

  // Responses being placed.
  struct Placing {
    fabric::ContentHandle content;
    std::uint32_t slot = 0;
    std::uint32_t next_free = 0;
    std::uint64_t value = 0;  // atomics
  };
  std::vector<std::unique_ptr<Placing>> placing_;
  std::uint32_t free_placing_ = none;
};

}  // namespace orrery::rnic
