// The plug-in interface: a team's own SystemC/TLM-2.0 device model as a PCI function of the platform.
//
// The model is an ordinary sc_module with base protocol sockets. A factory function in its shared object makes
// it, says what the PCI function looks like, and binds the sockets to the TlmSlot that it is given:
//
//   std::unique_ptr<sc_core::sc_module> create(orrery::models::TlmSlot& slot) {
//     slot.function.identity.vendor_id = 0x1234;
//     slot.function.identity.device_id = 0x0e30;
//     slot.function.bars[0].size = 4096;
//     slot.function.msix_vectors = 1;
//     auto device = std::make_unique<MyDevice>(slot.module_name());
//     slot.bind_bar(0, device->registers);      // its target socket
//     slot.bind_dma(device->dma);               // its initiator socket
//     device->interrupt.bind(slot.irq(0));      // its sc_out<bool>
//     slot.on_reset([d = device.get()] { d->reset(); });
//     return device;
//   }
//   ORRERY_TLM_DEVICE("my device", create)
//
// The shared object links Orrery::plugin, which is these headers and SystemC's shared library. It needs no
// symbol of the program, so there is no second copy of anything. docs/plugin-models.md is the user's page.
//
// HAND-OVERS
//
// Register accesses (program to model): b_transport on the target socket bound to the BAR.
//   Command READ or WRITE, address = offset in the BAR, streaming width = length, no byte enables, no DMI hint, delay
//   SC_ZERO_TIME on entry. The payload and its data are the program's, valid during the call.
//   The call comes outside every process of the model: from a VMM's access between two steps of the kernel (also
//   before the first one), or from the method that delivers TLPs. So b_transport must not wait(): it returns with the
//   access done and annotates how long that takes. It may notify events (with a delay or SC_ZERO_TIME), write
//   signals and call msix(). It can't start blocking DMA, and can't kill or reset processes, as the kernel may
//   be standing: it notifies a process that does.
//   A BAR serves one access after the other: in timed mode a read is answered when its own delay and those of
//   the accesses before it are over; a write is posted, nobody waits for it. In functional mode delays are ignored.
//   Response status: OK; ADDRESS, COMMAND, BURST and BYTE_ENABLE errors are answered with UR, GENERIC_ERROR and
//   INCOMPLETE with CA (writes: dropped, as posted writes are). An exception that leaves b_transport is logged and
//   answered with CA.
//   nb_transport, get_direct_mem_ptr and transport_dbg are never called.
//
// DMA (model to program): on initiator sockets bound by bind_dma().
//   Each transaction is a READ or WRITE at a bus address (an IOVA), any alignment, length >= 1, streaming width >=
//   length, no byte enables. DmaExtension (dma_extension.h) is optional, dma_call.h a convenience. Any number of
//   transactions may be under way at once; they share the link.
//   b_transport, from an SC_THREAD (from anywhere else: logged, GENERIC_ERROR): an annotated delay is waited for
//   first, then it blocks until the data of a read has arrived or a write has left, and returns with delay
//   SC_ZERO_TIME. Payload and data are the model's and must live until it returns. Killing a thread inside the
//   call cancels all DMA of the device.
//   nb_transport_fw, from any process: BEGIN_REQ is answered TLM_UPDATED with END_REQ (or TLM_COMPLETED with
//   an error response if the transaction is none); BEGIN_RESP comes by nb_transport_bw when it is done, which the
//   model answers TLM_COMPLETED, or TLM_UPDATED with END_RESP, or TLM_ACCEPTED and END_RESP later; one response at
//   a time on a socket. The payload needs a memory manager; the program holds a reference until then.
//   Response status: OK; ADDRESS_ERROR for UR (no such address, no permission in the IOMMU, Bus Master Enable off);
//   GENERIC_ERROR for CA, a malformed completion, or a transfer that a reset cancelled; COMMAND, BURST and
//   BYTE_ENABLE errors for a transaction outside these rules. Writes are posted: OK means that they have left.
//   DmaExtension::confirm makes the program follow them to their end and report what happened.
//   No DMI: bytes behind a fabric have no single owner, and every access must be a TLP. transport_dbg returns 0.
//   In functional mode no time passes, but other processes run while a call blocks.
//
// Interrupts: msix(vector) from anywhere, or a rising edge on irq(vector).
//   The MSI-X write follows the DMA writes that have returned before. Masking and the table are the VMM's.
//
// Reset (function-level or conventional): first all DMA is cancelled, then the function of on_reset() is called.
//   That happens outside every process, possibly in the middle of a DMA of the model: its b_transport returns in
//   the next delta cycle (one that still waits for its annotated delay: when that is over) with GENERIC_ERROR
//   and DmaExtension::cancelled. Registers may be written again before that: keep "started" as a flag, not
//   only as an event. Signals and events that were notified are the model's own.
//
// Time: sc_time_stamp() is the platform's simulated time.
//   In timed mode it advances event by event; in functional mode it follows the host's clock and the model's
//   wait()s follow it, so a model skips there what it only waits for as a cost (timed() tells). A clock that
//   never stops keeps the host busy: stop it while idle.
//
// Threads: there is one. Nothing here may be called from another thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <systemc>
#include <tlm>

#include "pcie/config_space.h"
#include "pcie/function_access.h"
#include "systemc_models/plugin/dma_extension.h"
#include "systemc_models/plugin/parameters.h"

namespace orrery::models {

// One BAR that the model serves.
struct TlmBar {
  std::uint64_t size = 0;     // bytes: 0 (no such BAR), or a power of two >= 128
  bool is_64bit = false;      // occupies this index and the next
  bool prefetchable = false;  // needs is_64bit
  // Longest access that the model sees, bytes: 1, 2, 4 or 8, longer and unaligned ones then come as several that are
  // aligned to their size, low addresses first; 0: every access comes as it is (for memory), up to 64 KiB.
  unsigned max_access = 8;
};

// What the function shows in its configuration space.
struct TlmFunction {
  // vendor_id and device_id must be set, class_code should be. Subsystem IDs left 0 become the same.
  pcie::FunctionIdentity identity{};
  std::array<TlmBar, pcie::bar_count> bars;
  // 0 … 2048. Table and PBA get a 32-bit BAR of their own, the last index that is free.
  unsigned msix_vectors = 0;
  std::uint64_t serial = 0;  // device serial number (EUI-64); 0: no such capability
  bool ats = false;          // ATS capability: the model sends AT = 10b requests
};

// One place for a device in the platform. The program makes it; a model uses it from its factory on, until
// its own destructor.
class TlmSlot {
 public:
  TlmFunction function;               // to be filled in by the factory
  const PluginParameters parameters;  // [[device]] params

  TlmSlot(const TlmSlot&) = delete;
  TlmSlot& operator=(const TlmSlot&) = delete;

  // Name of the device in the configuration, and a name for the model's sc_module.
  [[nodiscard]] virtual const char* name() const = 0;
  [[nodiscard]] virtual const char* module_name() const = 0;
  // Whether the platform counts time.
  [[nodiscard]] virtual bool timed() const = 0;

  // Sockets of any bus width, in the factory only. Every BAR of function.bars is bound exactly once.
  template <unsigned Width>
  void bind_bar(unsigned bar, tlm::tlm_base_target_socket_b<Width>& target) {
    connect_bar(bar, target.get_base_interface(), target.get_base_port());
  }
  template <unsigned Width>
  void bind_dma(tlm::tlm_base_initiator_socket_b<Width>& initiator) {
    connect_dma(initiator.get_base_interface(), initiator.get_base_port());
  }

  // Sends the message of an MSI-X vector, from any process or access. A vector that the function doesn't have
  // is dropped and logged.
  virtual void msix(unsigned vector) = 0;
  // The same by a signal: a change from false to true sends it. In the factory only; any number of writers.
  [[nodiscard]] virtual sc_core::sc_signal_inout_if<bool>& irq(unsigned vector) = 0;
  // What a reset calls. In the factory only, at most once.
  virtual void on_reset(std::function<void()> call) = 0;

 protected:
  explicit TlmSlot(PluginParameters given) : parameters(std::move(given)) {}
  ~TlmSlot() = default;

 private:
  virtual void connect_bar(unsigned bar, tlm::tlm_fw_transport_if<>& model,
                           sc_core::sc_port_b<tlm::tlm_bw_transport_if<>>& back) = 0;
  virtual void connect_dma(tlm::tlm_bw_transport_if<>& model,
                           sc_core::sc_port_b<tlm::tlm_fw_transport_if<>>& forward) = 0;
};

// Makes the model. What it throws becomes the user's message; the program owns what it returns.
using TlmDeviceFactory = std::unique_ptr<sc_core::sc_module> (*)(TlmSlot& slot);

// Changes whenever a declaration in this header, dma_extension.h or parameters.h changes.
inline constexpr std::uint32_t tlm_device_abi = 1;

// What a shared object exports as `orrery_tlm_device`. The first member stays what it is in every version.
struct TlmDevicePlugin {
  std::uint32_t abi;
  std::uint32_t systemc_version;  // of the headers it was compiled with, see systemc_version
  const char* description;
  TlmDeviceFactory create;
};

inline constexpr std::uint32_t systemc_version = (SC_VERSION_MAJOR << 16) | (SC_VERSION_MINOR << 8) | SC_VERSION_PATCH;

}  // namespace orrery::models

// Once in a shared object: its description (a text) and its factory.
#define ORRERY_TLM_DEVICE(description, create)                                                                     \
  extern "C" __attribute__((visibility("default"), used)) const orrery::models::TlmDevicePlugin orrery_tlm_device{ \
      orrery::models::tlm_device_abi, orrery::models::systemc_version, description, create};
