// The two sides of a PCI function: what a device model implements, and what its endpoint offers it.
//
// A DeviceModel (GPU, RNIC, a team's own) holds registers and engines; the Endpoint below it (endpoint.h)
// speaks TLPs: it decodes BARs, answers configuration requests, splits DMA by MPS and MRRS, matches
// completions and emits MSI-X writes. All calls happen on the simulation's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pcie/simulation.h"
#include "pcie/tlp.h"

namespace orrery::pcie {

class DmaListener;

// One DMA operation of a device. The device owns it and keeps it alive, with its buffer, until
// DmaListener::on_dma_done() or DevicePort::cancel_all(). Reusable after that; nothing is allocated.
struct DmaTransfer {
  enum class Kind : std::uint8_t { read, write };

  // Set by the device.
  Kind kind = Kind::read;
  AddressType at = AddressType::untranslated;
  Attributes attributes;
  std::uint64_t address = 0;    // bus address (an Iova for AT = 00b, an Hpa for AT = 10b)
  std::uint64_t length = 0;     // bytes, >= 1
  std::byte* buffer = nullptr;  // the device's own bytes: source of a write, destination of a read
  // Writes only: learn whether they arrived. Posted writes get no completion, so the endpoint follows
  // them with zero-length reads (PCIe Base 6.3 §2.2.5), one per 4 KiB page written, and reports their
  // status. Without it a write is done when its last TLP has left.
  bool confirm = false;
  DmaListener* listener = nullptr;
  std::uint64_t context = 0;  // the device's own

  // Results, valid in on_dma_done().
  CompletionStatus status = CompletionStatus::success;  // the first failure
  std::uint64_t failed_address = 0;                     // bus address of the failed TLP, if status != success
  Picoseconds started;                                  // start() was called
  Picoseconds finished;                                 // the last byte (or confirmation) arrived
  LatencyBreakdown latency;                             // of the TLP that finished last

  // The endpoint's bookkeeping.
  std::uint64_t issued = 0;       // bytes handed to the link
  std::uint64_t confirmed = 0;    // bytes covered by confirmation reads issued so far
  std::uint32_t outstanding = 0;  // non-posted TLPs (functional mode: bursts) without their last completion
  bool queued = false;            // waits in the endpoint's queue
  DmaTransfer* next = nullptr;
};

// Device memory of a peer, as one function's DMA sees it: [iova, iova + size) of the function's own addresses are the
// bytes at `hpa`, which a request with AT = 10b names.
struct PeerWindow {
  std::uint64_t iova = 0;
  std::uint64_t size = 0;
  std::uint64_t hpa = 0;
};

class DmaListener {
 public:
  // The transfer is the device's again; it may be started anew from here.
  virtual void on_dma_done(DmaTransfer& transfer) = 0;

 protected:
  ~DmaListener() = default;
};

// Counters of what a function sent and received over its link, in payload bytes of memory requests and
// completions (headers and framing not counted; configuration and the one DW that answers a zero-length read
// not counted).
struct PortCounters {
  std::uint64_t write_bytes_sent = 0;  // MWr payload, MSI-X included
  std::uint64_t write_bytes_received = 0;
  std::uint64_t read_bytes_requested = 0;   // by our MRd
  std::uint64_t completion_bytes_sent = 0;  // CplD payload sent for requests of others
  std::uint64_t completion_bytes_received = 0;
  std::uint64_t msix_sent = 0;  // each is a 4-byte MWr, also counted above
  // Completions received with a status other than success, and requests for which no BAR or model answered.
  std::uint64_t errors = 0;
  std::uint64_t unexpected_completions = 0;  // no such tag outstanding (e.g. after a reset)
};

// What an endpoint offers its device model.
class DevicePort {
 public:
  // Begins a transfer; on_dma_done() comes later, never from inside this call. Several transfers share
  // the link round robin, a TLP (functional mode: a burst) at a time; the writes of one transfer stay in order,
  // and a write started after another transfer's writes have all been issued follows them.
  virtual void start(DmaTransfer& transfer) = 0;
  // Forgets every transfer of this function; their listeners are not called, late completions are
  // dropped and counted.
  virtual void cancel_all() = 0;
  // Sends the memory write of MSI-X vector `vector`, ordered behind earlier writes of this function.
  virtual void msix(unsigned vector) = 0;
  [[nodiscard]] virtual const PortCounters& counters() const = 0;
  [[nodiscard]] virtual Simulation& simulation() = 0;

 protected:
  ~DevicePort() = default;
};

// A device model. Accesses come from TLPs of any size and alignment within the BAR (a register access
// of 1, 2, 4 or 8 bytes aligned to its size is what drivers use; anything else a model answers as its datasheet says).
class DeviceModel {
 public:
  virtual ~DeviceModel() = default;

  // Called once, before anything else.
  virtual void attach(DevicePort& port) = 0;
  // Register BARs. offset + size lies within the BAR.
  virtual void bar_read(unsigned bar, std::uint64_t offset, std::span<std::byte> into) = 0;
  virtual void bar_write(unsigned bar, std::uint64_t offset, std::span<const std::byte> from) = 0;
  // How the bar_read() that has just returned ended: anything but success is answered with that status and
  // without data.
  [[nodiscard]] virtual CompletionStatus read_status() const { return CompletionStatus::success; }
  // Memory BARs: the bytes behind [offset, offset + size), or an empty span if the BAR (or that part of it)
  // is registers, which then go through the two calls above.
  virtual std::span<std::byte> bar_memory(unsigned bar, std::uint64_t offset, std::uint64_t size) {
    static_cast<void>(bar), static_cast<void>(offset), static_cast<void>(size);
    return {};
  }
  // The memfd behind a memory BAR from offset 0, if a VMM may map the BAR; else -1.
  [[nodiscard]] virtual int bar_memory_fd(unsigned bar) const {
    static_cast<void>(bar);
    return -1;
  }
  // Access time of a register, and of device memory behind a BAR, charged in timed mode. Asked for after the
  // read that it is charged to.
  [[nodiscard]] virtual Picoseconds access_time(unsigned bar) const = 0;
  // All windows of peers' device memory that the function may reach now; what was told before is void. Comes from the
  // host's side, never from the guest: it lets a device that the host trusts (an RNIC with a memory type in its
  // translation table: Stellar, SIGCOMM 2025, §6) use AT = 10b.
  virtual void set_peer_windows(std::span<const PeerWindow> windows) { static_cast<void>(windows); }
  // Function-level or conventional reset. The endpoint has cancelled all transfers before.
  virtual void reset() = 0;
};

}  // namespace orrery::pcie
