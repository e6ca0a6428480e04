// The RNIC's data path: queue pairs, completion and event queues, memory keys, and the transport between them and
// the wire.
//
// Three faces:
//   control  the management block's, on behalf of the firmware: contexts (firmware/interface/contexts.h),
//            translation memory, events; what the hardware has to say comes back through EventSink;
//   data     the BAR adapter's: doorbells;
//   below    a pcie::DevicePort per function for every access to guest memory and every interrupt, and a
//            fabric::Port for packets.
// Simulation thread only. Nothing is done inside a call that could take long: doorbells start DMA and return.
//
// Numbers: QPs, CQs, SRQs, memory keys are numbered over all functions; an EQ's context index is
// eq_index(function, eqn), a source address' is address_index(function, i). A group member's is its slot.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/time.h"
#include "fabric/transport/reliable_receiver.h"
#include "fabric/transport/reliable_sender.h"
#include "firmware/interface/contexts.h"
#include "systemc_models/rnic/verbs/queue_format.h"

namespace orrery::pcie {
class DevicePort;
struct PeerWindow;
}  // namespace orrery::pcie
namespace orrery::fabric {
struct Packet;
class PacketPool;
class Port;
}  // namespace orrery::fabric

namespace orrery::rnic {

constexpr std::uint32_t eq_index(std::uint32_t function, std::uint32_t eqn) {
  return function * max_eqs + eqn;
}
constexpr std::uint32_t address_index(std::uint32_t function, std::uint32_t index) {
  return function * max_addresses + index;
}

// What the RNIC's own pipelines take; links, memory and wire are charged where they are modelled. Zero: nothing.
struct VerbsTiming {
  Picoseconds message = {};   // occupancy of the send engine by a WQE: its inverse is the highest message rate
  Picoseconds gather = {};    // from a packet's turn to the read of its payload: keys, translation, scheduling
  Picoseconds pipeline = {};  // a packet's way through the sending and the receiving RNIC; spent at the receiver
};

struct VerbsSettings {
  VerbsTiming timing = {};
  std::uint32_t translation_entries = 1U << 24;  // capacity of the translation memory, 8 bytes each; memory is
                                                 // taken in pages of 4096 entries when written
  // Payload writes to guest memory are followed by zero-length reads, so that a page that went away is reported to
  // the peer (remote operational error) instead of being lost.
  bool confirm_payload = true;
  std::uint32_t max_groups = 8192;  // multicast members
  // Transport of reliable connections. PSNs, retry counts and the acknowledge timeout are the QP's own, and
  // paths.stream the QP's number.
  fabric::SenderSettings sender = {};
  fabric::ReceiverSettings receiver = {};
};

// Counters of one function; never reset but by a function's disabling.
struct VerbsCounters {
  std::uint64_t doorbells = 0;
  std::uint64_t doorbells_refused = 0;  // wrong UAR, no such object, function disabled
  std::uint64_t send_requests = 0;      // WQEs executed
  std::uint64_t receive_requests = 0;   // receive WQEs consumed
  std::uint64_t completions = 0;
  std::uint64_t completion_errors = 0;  // CQEs with an error other than flushed
  std::uint64_t completions_flushed = 0;
  std::uint64_t cq_overruns = 0;
  std::uint64_t events = 0;
  std::uint64_t events_lost = 0;  // EQ full
  std::uint64_t interrupts = 0;
  std::uint64_t payload_bytes_sent = 0;  // first transmissions
  std::uint64_t payload_bytes_received = 0;
  std::uint64_t key_violations = 0;  // lkey or rkey refused
  std::uint64_t page_faults = 0;
  std::uint64_t rnr_naks_sent = 0;
  std::uint64_t rnr_naks_received = 0;
  std::uint64_t naks_sent = 0;
  std::uint64_t naks_received = 0;
  std::uint64_t qkey_violations = 0;
  std::uint64_t datagrams_dropped = 0;  // no receive WQE, wrong Q_Key, no such QP
};

// What the hardware tells the firmware (EVENT_FIFO).
struct HardwareEvent {
  EventCode code = EventCode::no_event;
  std::uint32_t function = 0;
  std::uint32_t object = 0;
  std::uint32_t detail = 0;
};

class EventSink {
 public:
  // Called from the middle of things: it must not call the engine, but note the event and act on it later.
  virtual void on_hardware_event(const HardwareEvent& event) = 0;
  // A destroyed context that was not idle() at once is now.
  virtual void on_context_idle(ContextKind kind, std::uint32_t index) = 0;

 protected:
  ~EventSink() = default;
};

// Takes what the RNIC receives and is not RoCE: the Ethernet engine. The content's reference becomes the sink's.
class FrameSink {
 public:
  virtual void on_frame(const fabric::Packet& packet) = 0;

 protected:
  ~FrameSink() = default;
};

enum class ControlResult : std::uint8_t {
  ok,
  bad_index,    // no such context, or beyond the table
  bad_value,    // a field out of range; nothing was changed
  wrong_state,  // the QP is in a state that forbids it (error leaves for reset only)
  busy,         // destroyed, but its DMA has not drained
};

class VerbsEngine {
 public:
  // `format` and `sink` outlive the engine; so do ports, pool and simulation. It is destroyed at rest, or after the
  // ports have cancelled all transfers: nothing may call it back.
  VerbsEngine(const VerbsSettings& settings, const QueueFormat& format, EventSink& sink);
  ~VerbsEngine();
  VerbsEngine(const VerbsEngine&) = delete;
  VerbsEngine& operator=(const VerbsEngine&) = delete;

  // Before the first use of `function` (< max_functions).
  void attach(std::uint32_t function, pcie::DevicePort& port);
  // The device memory of peers that the function may reach from now on: the only one that it does by AT = 10b.
  // Entries written before for a window that is there no more, or at another place, are no longer present (a page
  // fault). Of more than FunctionWindows::most_device_windows the rest is reached as host memory is.
  void set_peer_windows(std::uint32_t function, std::span<const pcie::PeerWindow> windows);
  // The wire, and the pool of its packets. All functions share it.
  void attach(fabric::Port& port, fabric::PacketPool& pool);

  // ---- Control ------------------------------------------------------------------------------------------------
  // Creates the context, or changes it if there is one. `bytes`: the context structure, exactly.
  //
  // QP: the state it names is entered. Entering init from reset, rtr from init and rts from rtr starts what IBTA
  // §10.3.1 says; `error` flushes both queues; `reset` forgets everything and completes nothing; sqd drains. A QP that
  // the hardware has put in error stays there whatever is written (wrong_state), until reset. Attributes may be
  // rewritten in any state; PSNs are taken over at init → rtr (receive) and rtr → rts (send).
  // CQ, EQ, SRQ, mkey: indices and ownership start anew when a context becomes valid.
  // SRQ: rewriting a valid one changes its limit only. Ethernet queues: their state only.
  ControlResult write_context(ContextKind kind, std::uint32_t index, std::span<const std::byte> bytes);
  // The context as it stands: state, PSNs and limits are the hardware's. ContextKind::fault: a FaultRecord by token.
  ControlResult read_context(ContextKind kind, std::uint32_t index, std::span<std::byte> into) const;
  // Ends it: no further access to guest memory on its behalf is begun. busy: idle() is false as yet, DMA of it is
  // on the way; the number must not be used again until it is.
  ControlResult destroy_context(ContextKind kind, std::uint32_t index);
  // No DMA that was begun on its behalf before it was destroyed (or changed: mkey, translation entries) is left.
  [[nodiscard]] bool idle(ContextKind kind, std::uint32_t index) const;

  // Any entries; they keep their flags.
  ControlResult write_translation(std::uint32_t first, std::span<const std::uint64_t> entries);
  // Page entries of the function's own addresses. Each is given its memory type: device memory where it lies in a
  // window of set_peer_windows(), host memory elsewhere; `pages` is changed so. bad_index: beyond the memory, or no
  // such function.
  ControlResult write_pages(std::uint32_t function, std::uint32_t first, std::span<std::uint64_t> pages);
  ControlResult read_translation(std::uint32_t first, std::span<std::uint64_t> into) const;

  // Arms an SRQ's limit (0 disarms it).
  ControlResult arm_srq(std::uint32_t srqn, std::uint32_t limit);
  // An EQE of the firmware's own: command completion, port change, the asynchronous events of objects.
  ControlResult post_event(std::uint32_t function, std::uint32_t eqn, const Event& event);
  // Answers EventCode::work_request: completes the WQE at the head of the QP's send queue, and its queue goes on.
  // Anything but success puts the QP in error.
  ControlResult complete_work_request(std::uint32_t qpn, CompletionCode code);
  // The WQE that waits for complete_work_request(); empty if none does.
  [[nodiscard]] std::span<const std::byte> work_request(std::uint32_t qpn) const;
  // Answers EventCode::page_fault. false: the access is tried again. true: it ends as a protection error.
  ControlResult resume_fault(std::uint32_t token, bool failed);
  // Function-level reset: every context of the function is gone, its DMA (which the endpoint has cancelled) too.
  void reset(std::uint32_t function);

  // ---- Data ---------------------------------------------------------------------------------------------------
  // Doorbells through UAR page `uar` of `function`. One through another page than the object's is counted and
  // ignored.
  // Numbers from max_qps on: an Ethernet send queue's.
  void ring_send(std::uint32_t function, std::uint32_t uar, std::uint32_t qpn);
  void arm_cq(std::uint32_t function, std::uint32_t uar, std::uint32_t cqn, std::uint32_t consumer, bool solicited_only,
              std::uint32_t sequence);
  void update_eq(std::uint32_t function, std::uint32_t uar, std::uint32_t eqn, std::uint32_t consumer, bool arm);

  [[nodiscard]] const VerbsCounters& counters(std::uint32_t function) const;
  [[nodiscard]] const FrameCounters& frame_counters(std::uint32_t function) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace orrery::rnic
