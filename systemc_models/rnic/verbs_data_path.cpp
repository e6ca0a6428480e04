#include "systemc_models/rnic/verbs_data_path.h"

#include "systemc_models/rnic/mlx5/queue_format.h"

namespace orrery::rnic {

namespace {

class VerbsDataPath final : public DataPath {
 public:
  VerbsDataPath(const VerbsSettings& settings, EventSink& sink, fabric::Port& port, fabric::PacketPool& pool)
      : engine_(settings, format_, sink) {
    engine_.attach(port, pool);
  }

  void attach(std::uint32_t function, pcie::DevicePort& port) override { engine_.attach(function, port); }
  void set_peer_windows(std::uint32_t function, std::span<const pcie::PeerWindow> windows) override {
    engine_.set_peer_windows(function, windows);
  }

  ControlResult write_context(ContextKind kind, std::uint32_t index, std::span<const std::byte> bytes) override {
    return engine_.write_context(kind, index, bytes);
  }
  ControlResult read_context(ContextKind kind, std::uint32_t index, std::span<std::byte> into) override {
    return engine_.read_context(kind, index, into);
  }
  ControlResult destroy_context(ContextKind kind, std::uint32_t index) override {
    return engine_.destroy_context(kind, index);
  }
  [[nodiscard]] bool idle(ContextKind kind, std::uint32_t index) override { return engine_.idle(kind, index); }
  ControlResult write_translation(std::uint32_t first, std::span<const std::uint64_t> entries) override {
    return engine_.write_translation(first, entries);
  }
  ControlResult write_pages(std::uint32_t function, std::uint32_t first, std::span<std::uint64_t> pages) override {
    return engine_.write_pages(function, first, pages);
  }
  ControlResult read_translation(std::uint32_t first, std::span<std::uint64_t> into) override {
    return engine_.read_translation(first, into);
  }
  ControlResult arm_srq(std::uint32_t srqn, std::uint32_t limit) override { return engine_.arm_srq(srqn, limit); }
  ControlResult post_event(std::uint32_t function, std::uint32_t eqn, const Event& event) override {
    return engine_.post_event(function, eqn, event);
  }
  ControlResult complete_work_request(std::uint32_t qpn, CompletionCode code) override {
    return engine_.complete_work_request(qpn, code);
  }
  [[nodiscard]] std::span<const std::byte> work_request(std::uint32_t qpn) override {
    return engine_.work_request(qpn);
  }
  ControlResult resume_fault(std::uint32_t token, bool failed) override { return engine_.resume_fault(token, failed); }
  void reset(std::uint32_t function) override { engine_.reset(function); }

  void ring_send(std::uint32_t function, std::uint32_t uar, std::uint32_t qpn) override {
    engine_.ring_send(function, uar, qpn);
  }
  void arm_cq(std::uint32_t function, std::uint32_t uar, std::uint32_t cqn, std::uint32_t consumer, bool solicited_only,
              std::uint32_t sequence) override {
    engine_.arm_cq(function, uar, cqn, consumer, solicited_only, sequence);
  }
  void update_eq(std::uint32_t function, std::uint32_t uar, std::uint32_t eqn, std::uint32_t consumer,
                 bool arm) override {
    engine_.update_eq(function, uar, eqn, consumer, arm);
  }

 private:
  mlx5::Mlx5QueueFormat format_;
  VerbsEngine engine_;
};

}  // namespace

std::unique_ptr<DataPath> make_verbs_data_path(const VerbsSettings& settings, EventSink& sink, fabric::Port& port,
                                               fabric::PacketPool& pool) {
  return std::make_unique<VerbsDataPath>(settings, sink, port, pool);
}

}  // namespace orrery::rnic
