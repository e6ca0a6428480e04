// The root complex: root ports, the IOMMU, the way to memory, peer-to-peer between root ports, and the
// CPU's way to devices.
//
// Inbound memory requests with AT = 00b are translated by the IOMMU for their requester ID; AT = 10b
// carries a host physical address and passes only from functions that may use translated requests
// (PCIe Base 6.3 §10.2); AT = 01b is answered UR: the translation agent comes with the PCIe issue.
// A request then goes to DRAM, to the interrupt window, or down another (or the same) root port.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pcie/host_memory.h"
#include "pcie/iommu.h"
#include "pcie/range_map.h"
#include "pcie/simulation.h"
#include "pcie/switch.h"
#include "pcie/tlp.h"

namespace orrery::pcie {

// x86's interrupt window: memory writes to it are message-signalled interrupts, never memory.
inline constexpr std::uint64_t interrupt_window_start = 0xfee0'0000;
inline constexpr std::uint64_t interrupt_window_size = 0x10'0000;

// Receives message-signalled interrupts.
class InterruptController {
 public:
  virtual void interrupt(Bdf requester, std::uint64_t address, std::uint32_t data) = 0;

 protected:
  ~InterruptController() = default;
};

struct RootComplexSettings {
  Picoseconds latency = {150'000};  // ingress to IOMMU/memory fabric, and egress, each way
  // Added to a request that leaves by a root port of the other socket, and to its completion on the way back if
  // a device sent the request.
  Picoseconds socket_link = {110'000};
  std::uint32_t completion_unit = 256;  // MPS, or the RCB if completions are chopped there
  bool peer_to_peer = true;             // false: requests for a peer's BAR are answered UR
};

struct RootComplexCounters {
  std::uint64_t memory_reads = 0;  // TLPs to DRAM
  std::uint64_t memory_writes = 0;
  std::uint64_t peer_to_peer = 0;        // TLPs sent down a root port on behalf of a device
  std::uint64_t peer_to_peer_bytes = 0;  // their payload, and bytes asked for
  std::uint64_t interrupts = 0;
  std::uint64_t translation_faults = 0;
  std::uint64_t translated_blocked = 0;  // AT = 10b from a function that may not
  std::uint64_t unsupported = 0;
  std::uint64_t unexpected_completions = 0;
};

// One access of the CPU (or of a VMM on its behalf) to a device, of any length; it travels as requests of at
// most 64 bytes. The caller owns it and its buffer until done.
struct HostRequest {
  TlpType type = TlpType::MRd;  // MRd, MWr, CfgRd1, CfgWr1 (sent as type 0 where the target is on the root port's bus)
  std::uint64_t address = 0;    // memory: Hpa; Cfg: register offset, multiple of 4
  Bdf target;                   // Cfg
  std::span<std::byte> buffer;  // read: filled; write: sent
  std::uint8_t byte_enables = 0xf;  // Cfg
  unsigned socket = 0;              // where the CPU is
  // Results.
  bool done = false;  // writes: at once; reads: when the last completion is in
  CompletionStatus status = CompletionStatus::success;
  Picoseconds started;
  Picoseconds finished;
  LatencyBreakdown latency;  // of the TLP that finished last; with only one, its total is finished - started
  // The root complex's bookkeeping.
  std::uint32_t outstanding = 0;  // TLPs without their last completion
  std::uint32_t issued = 0;       // bytes sent or asked for
  unsigned port = 0;
  HostRequest* next = nullptr;  // waits for a tag
};

class RootComplex final : private EventHandler, private HostMemoryListener {
 public:
  RootComplex(Simulation& simulation, const std::string& name, const RootComplexSettings& settings, Iommu& iommu,
              HostMemory& memory, InterruptController& interrupts);
  RootComplex(const RootComplex&) = delete;
  RootComplex& operator=(const RootComplex&) = delete;
  ~RootComplex();

  // Adds a root port; returns its index. `buses`: those below it.
  unsigned add_port(const std::string& name, unsigned socket, BusRange buses, const AcsControl& acs);
  [[nodiscard]] TlpSink& ingress(unsigned port);
  void connect(unsigned port, TlpSink& egress);
  // Host physical windows of the BARs below a port. False if it overlaps one that is there.
  bool add_window(unsigned port, std::uint64_t start, std::uint64_t size);
  void clear_windows();
  [[nodiscard]] bool window_free(std::uint64_t start, std::uint64_t size) const {
    return !windows_.overlaps(start, size);
  }
  // Whether translated requests (AT = 10b) of this function are let through (as an IOMMU's context entry says).
  void allow_translated(Bdf requester, bool allowed) { translated_allowed_.set(requester.value, allowed); }

  // Begins a CPU access. In functional mode a read is done on return, unless it went to no device's BAR
  // (status UR) or to memory behind messages. At most 64 TLPs with completions are outstanding; further ones
  // wait, in order.
  void start(HostRequest& request);
  // Forgets a request that is not done; its completions will be dropped.
  void cancel(HostRequest& request);

  [[nodiscard]] const RootComplexCounters& counters() const { return counters_; }
  [[nodiscard]] Bdf bdf() const { return {}; }

 private:
  struct Port;
  struct Pending;
  Picoseconds receive(unsigned port, TlpPtr tlp, Picoseconds delay);
  void handle(unsigned port, TlpPtr tlp);
  void handle_completion(unsigned port, TlpPtr tlp);
  void handle_memory(unsigned port, TlpPtr tlp);
  // Where the bytes from `offset` on of a memory request go, and how many of them go there.
  struct Destination;
  [[nodiscard]] Destination resolve(const Tlp& tlp, std::uint32_t offset);
  void write_direct(const Tlp& request, const Destination& destination, std::uint32_t offset);
  void to_peer(unsigned port, unsigned target, TlpPtr tlp);
  void read_direct(unsigned port, const Tlp& request, const Destination& destination, std::uint32_t offset);
  void remote_access(unsigned port, TlpPtr tlp, Hpa address);
  void fail(unsigned port, const Tlp& request, CompletionStatus status);
  // Sends a completion that the root complex makes itself: it crosses it on the way out, too.
  void respond(unsigned port, TlpPtr completion, Picoseconds after);
  // Sends `tlp` out of `port` after `delay`, and not before the posted requests that were sent earlier: nothing
  // passes a posted request (§2.4.1).
  void send(unsigned port, TlpPtr tlp, Picoseconds delay);
  void on_event(std::uint64_t argument) override;
  void on_host_memory(std::uint64_t context, bool ok) override;
  [[nodiscard]] int port_of(Bdf id) const { return port_of_bus_[id.bus()]; }
  void issue_host(HostRequest& request, unsigned tag);
  void issue_waiting();
  void complete_host_read(Tlp& tlp);

  Simulation& simulation_;
  RootComplexSettings settings_;
  Iommu& iommu_;
  HostMemory& memory_;
  InterruptController& interrupts_;
  ComponentId id_;
  ComponentId memory_id_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::array<std::int16_t, 256> port_of_bus_;
  RangeMap<unsigned> windows_;
  std::bitset<65536> translated_allowed_;
  std::unique_ptr<Pending> pending_;
  RootComplexCounters counters_;
};

}  // namespace orrery::pcie
