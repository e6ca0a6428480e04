// The RNIC's data path as the rest of the device uses it: control face, doorbells, attachment.
//
// VerbsEngine is what stands behind it; the seam lets firmware, management block and BAR adapter be tested against a
// stand-in.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "pcie/device.h"
#include "systemc_models/rnic/verbs/verbs_engine.h"

namespace orrery::rnic {

// Meanings are those of VerbsEngine's functions of the same name.
class ControlPlane {
 public:
  virtual ControlResult write_context(ContextKind kind, std::uint32_t index, std::span<const std::byte> bytes) = 0;
  virtual ControlResult read_context(ContextKind kind, std::uint32_t index, std::span<std::byte> into) = 0;
  virtual ControlResult destroy_context(ContextKind kind, std::uint32_t index) = 0;
  [[nodiscard]] virtual bool idle(ContextKind kind, std::uint32_t index) = 0;
  virtual ControlResult write_translation(std::uint32_t first, std::span<const std::uint64_t> entries) = 0;
  virtual ControlResult write_pages(std::uint32_t function, std::uint32_t first, std::span<std::uint64_t> pages) = 0;
  virtual ControlResult read_translation(std::uint32_t first, std::span<std::uint64_t> into) = 0;
  virtual ControlResult arm_srq(std::uint32_t srqn, std::uint32_t limit) = 0;
  virtual ControlResult post_event(std::uint32_t function, std::uint32_t eqn, const Event& event) = 0;
  virtual ControlResult complete_work_request(std::uint32_t qpn, CompletionCode code) = 0;
  [[nodiscard]] virtual std::span<const std::byte> work_request(std::uint32_t qpn) = 0;
  virtual ControlResult resume_fault(std::uint32_t token, bool failed) = 0;
  virtual void reset(std::uint32_t function) = 0;

 protected:
  ~ControlPlane() = default;
};

// Doorbells of guests, by function and UAR page.
class DoorbellSink {
 public:
  virtual void ring_send(std::uint32_t function, std::uint32_t uar, std::uint32_t qpn) = 0;
  virtual void arm_cq(std::uint32_t function, std::uint32_t uar, std::uint32_t cqn, std::uint32_t consumer,
                      bool solicited_only, std::uint32_t sequence) = 0;
  virtual void update_eq(std::uint32_t function, std::uint32_t uar, std::uint32_t eqn, std::uint32_t consumer,
                         bool arm) = 0;

 protected:
  ~DoorbellSink() = default;
};

class DataPath : public ControlPlane, public DoorbellSink {
 public:
  virtual ~DataPath() = default;
  // Before the first use of `function`.
  virtual void attach(std::uint32_t function, pcie::DevicePort& port) = 0;
  virtual void set_peer_windows(std::uint32_t function, std::span<const pcie::PeerWindow> windows) = 0;
};

// Makes the data path of one RNIC, which reports to `sink`.
using MakeDataPath = std::function<std::unique_ptr<DataPath>(EventSink& sink)>;

}  // namespace orrery::rnic
