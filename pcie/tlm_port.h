// TLPs over TLM-2.0 sockets: the public face of every PCIe component.
//
// A PCIe port is two sockets: an initiator for what it sends, a target for what it receives. Every TLP,
// request or completion, is one transaction of the base protocol on the sender's initiator socket:
//   - generic payload: a memory write is TLM_WRITE with address, data and length; everything else is
//     TLM_IGNORE_COMMAND, because in PCI Express a read's data comes back as a TLP of its own;
//   - extension TlpExtension: the TLP itself;
//   - nb_transport_fw with BEGIN_REQ and the annotated delay after which the TLP is the receiver's; the answer
//     is always TLM_COMPLETED, the delay then being the time until the TLP has left the sender's
//     hands. nb_transport_bw is never called. (With flow-control credits, TLM_ACCEPTED and END_REQ.)
//   - b_transport does the same; a payload without the extension gets TLM_COMMAND_ERROR_RESPONSE: models
//     that speak plain reads and writes attach by TlmDevice (systemc_models/plugin).
//   - a socket that is bound straight to a TlpTarget, with nothing of anybody's in between, hands the TLP over
//     without a payload: nobody could see it, and it saves half of the time of a hop. Whatever is bound in
//     between (a monitor, an interconnect, a team's own model) gets payloads as above.
//   - no DMI, and transport_dbg returns 0: bytes behind a fabric have no single owner.
// Ownership: the callee owns the TLP from the call on. The payload is the TLP's carrier on every hop of its way,
// reference-counted as the base protocol has it: whoever acquires it keeps it, but its extension no longer
// names a TLP once that has been consumed.
#pragma once

#include <tlm>

#include "pcie/tlp.h"

namespace orrery::pcie {

// On every payload that carries a TLP.
class TlpExtension final : public tlm::tlm_extension<TlpExtension> {
 public:
  Tlp* tlp = nullptr;       // null once the TLP has been consumed
  void* carrier = nullptr;  // of the pool of payloads
  tlm::tlm_extension_base* clone() const override;
  void copy_from(const tlm::tlm_extension_base& other) override;
};

// Makes payloads for TLPs and takes them back; installs itself as the pool's carrier hook.
void use_tlm_carriers(TlpPool& pool);

// A sending port: a core hands TLPs in, the socket sends them on.
class TlpInitiator final : public TlpSink, private tlm::tlm_bw_transport_if<> {
 public:
  explicit TlpInitiator(const char* name);
  Picoseconds receive(TlpPtr tlp, Picoseconds delay) override;
  tlm::tlm_initiator_socket<> socket;

 private:
  tlm::tlm_sync_enum nb_transport_bw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                                     sc_core::sc_time& delay) override;
  void invalidate_direct_mem_ptr(sc_dt::uint64 start, sc_dt::uint64 end) override;
  Picoseconds send_payload(TlpPtr tlp, Picoseconds delay);

  TlpSink* direct_ = nullptr;  // the core behind the TlpTarget that the socket is bound to
  bool resolved_ = false;      // binding is complete once the first TLP comes
};

// A receiving port: what comes in by the socket is handed to a core.
class TlpTarget final : public tlm::tlm_fw_transport_if<> {
 public:
  TlpTarget(const char* name, TlpSink& core);
  tlm::tlm_target_socket<> socket;
  [[nodiscard]] TlpSink& core() { return core_; }

 private:
  void b_transport(tlm::tlm_generic_payload& payload, sc_core::sc_time& delay) override;
  tlm::tlm_sync_enum nb_transport_fw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                                     sc_core::sc_time& delay) override;
  bool get_direct_mem_ptr(tlm::tlm_generic_payload& payload, tlm::tlm_dmi& dmi) override;
  unsigned transport_dbg(tlm::tlm_generic_payload& payload) override;

  TlpSink& core_;
};

}  // namespace orrery::pcie
