// What a plug-in device can say about a DMA transaction beyond the generic payload, and learn of it.
#pragma once

#include <tlm>

#include "pcie/tlp.h"

namespace orrery::models {

// Optional. Put it on the payload with set_extension() and take it off with clear_extension(), or let
// set_auto_extension() do it for pooled payloads; it may be reused.
class DmaExtension : public tlm::tlm_extension<DmaExtension> {
 public:
  // Set by the model.
  pcie::AddressType at = pcie::AddressType::untranslated;  // translated: the address is an HPA (TlmFunction::ats)
  pcie::Attributes attributes;
  // Writes: follow the data to its end by a zero-length read a page (PCIe Base 6.3 §2.2.5) and report the status.
  bool confirm = false;

  // Results, valid when the transaction has ended.
  pcie::CompletionStatus status = pcie::CompletionStatus::success;
  std::uint64_t failed_address = 0;  // bus address of the TLP that failed first
  bool cancelled = false;            // by a reset: nobody knows how much of it happened
  Picoseconds started;
  Picoseconds finished;

  tlm::tlm_extension_base* clone() const override { return new DmaExtension(*this); }
  void copy_from(const tlm::tlm_extension_base& other) override { *this = static_cast<const DmaExtension&>(other); }
};

}  // namespace orrery::models
