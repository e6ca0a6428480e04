// The program's side of a plug-in device: a TlmSlot towards the model, a DeviceModel towards the endpoint.
//
// Register accesses become b_transport calls, transactions of the model become DmaTransfers; the rules of both
// are in tlm_device.h.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <systemc>
#include <tlm>

#include "pcie/device.h"
#include "pcie/modules.h"
#include "systemc_models/plugin/tlm_device.h"

namespace orrery::models {

class TlmAdapter final : public sc_core::sc_module,
                         public pcie::DeviceModel,
                         public TlmSlot,
                         private pcie::DmaListener,
                         private EventHandler,
                         private tlm::tlm_bw_transport_if<> {
 public:
  // `host` runs the simulation that attach() will name, and outlives the adapter.
  TlmAdapter(const sc_core::sc_module_name& module, std::string device_name, bool timed, PluginParameters given,
             pcie::EventHost& host);
  ~TlmAdapter() override;

  // Takes the model that the factory has made and checks that what it described is bound. Throws Error.
  void take(std::unique_ptr<sc_core::sc_module> model);
  // The BAR that holds the MSI-X table, answered here; set before the first access, -1: none.
  void set_msix_bar(int bar) { msix_bar_ = bar; }

  // TlmSlot.
  [[nodiscard]] const char* name() const override { return device_name_.c_str(); }
  [[nodiscard]] const char* module_name() const override { return model_name_.c_str(); }
  [[nodiscard]] bool timed() const override { return timed_; }
  void msix(unsigned vector) override;
  [[nodiscard]] sc_core::sc_signal_inout_if<bool>& irq(unsigned vector) override;
  void on_reset(std::function<void()> call) override;

  // DeviceModel.
  void attach(pcie::DevicePort& port) override { port_ = &port; }
  void bar_read(unsigned bar, std::uint64_t offset, std::span<std::byte> into) override;
  void bar_write(unsigned bar, std::uint64_t offset, std::span<const std::byte> from) override;
  [[nodiscard]] pcie::CompletionStatus read_status() const override { return read_status_; }
  [[nodiscard]] Picoseconds access_time(unsigned bar) const override;
  void reset() override;

 private:
  class DmaChannel;
  using IrqSignal = sc_core::sc_signal<bool, sc_core::SC_MANY_WRITERS>;

  struct Bar {
    tlm::tlm_fw_transport_if<>* model = nullptr;
    Picoseconds busy_until;  // timed mode: the accesses so far are over
  };
  // One transaction of the model under way.
  struct Request {
    pcie::DmaTransfer transfer;
    tlm::tlm_generic_payload* payload = nullptr;
    DmaChannel* channel = nullptr;  // null: a blocking call waits for `ended`
    sc_core::sc_event ended;
    bool in_use = false;
    bool in_flight = false;  // the endpoint has the transfer
    bool done = false;
    bool cancelled = false;
    Request* next = nullptr;  // free list
    std::uint32_t index = 0;
    std::uint32_t generation = 0;  // 28 bits: tells the uses of this entry apart
  };
  // Arguments of events; any other is the generation << 32 | index of a request whose annotated delay is over.
  static constexpr std::uint64_t msix_event = std::uint64_t{1} << 63;     // | vector
  static constexpr std::uint64_t respond_event = std::uint64_t{1} << 62;  // | channel

  void connect_bar(unsigned bar, tlm::tlm_fw_transport_if<>& model,
                   sc_core::sc_port_b<tlm::tlm_bw_transport_if<>>& back) override;
  void connect_dma(tlm::tlm_bw_transport_if<>& model, sc_core::sc_port_b<tlm::tlm_fw_transport_if<>>& forward) override;
  tlm::tlm_sync_enum nb_transport_bw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                                     sc_core::sc_time& delay) override;
  void invalidate_direct_mem_ptr(sc_dt::uint64 /*start*/, sc_dt::uint64 /*end*/) override {}

  void on_dma_done(pcie::DmaTransfer& transfer) override;
  void on_event(std::uint64_t argument) override;

  [[nodiscard]] pcie::CompletionStatus access(tlm::tlm_command command, unsigned bar, std::uint64_t offset,
                                              std::byte* bytes, std::size_t size);
  [[nodiscard]] tlm::tlm_response_status call_model(Bar& bar, tlm::tlm_command command, std::uint64_t offset,
                                                    std::byte* bytes, std::size_t size);
  [[nodiscard]] Picoseconds now() const { return {sc_core::sc_time_stamp().value()}; }
  // Events scheduled by a process or an access are seen by the kernel.
  void enter() { host_.synchronise(); }
  void leave() { host_.kick(); }

  Request& take_request(tlm::tlm_generic_payload& payload, DmaChannel* channel);
  void give_back(Request& request);
  void begin(Request& request);
  void finish(Request& request);
  void cancel_requests();
  void blocking_transfer(tlm::tlm_generic_payload& payload, sc_core::sc_time& delay);
  void complain(const std::string& what);

  std::string device_name_;
  std::string model_name_;
  bool timed_;
  pcie::EventHost& host_;
  pcie::DevicePort* port_ = nullptr;
  std::array<Bar, pcie::bar_count> bars_;
  int msix_bar_ = -1;
  pcie::CompletionStatus read_status_ = pcie::CompletionStatus::success;
  bool in_access_ = false;
  tlm::tlm_generic_payload access_payload_;
  std::vector<std::unique_ptr<DmaChannel>> channels_;
  std::vector<std::unique_ptr<IrqSignal>> irqs_;  // by vector; null: not asked for
  std::function<void()> reset_call_;
  std::deque<Request> requests_;
  Request* free_requests_ = nullptr;
  unsigned complaints_ = 0;
  std::unique_ptr<sc_core::sc_module> model_;  // goes first: it may hold on to the slot
};

}  // namespace orrery::models
