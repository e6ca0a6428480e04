// The PCI function below a device model: BAR decoding, configuration requests, and the DMA requester.
//
// Splits DMA by Max_Payload_Size and Max_Read_Request_Size, matches completions to tags, follows posted
// writes with zero-length reads where the device asks for confirmation, and emits MSI-X writes
// (PCIe Base 6.3 §2.2, §2.3). In functional mode a transfer travels in bursts of up to 64 KiB.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pcie/bar.h"
#include "pcie/config_space.h"
#include "pcie/device.h"
#include "pcie/simulation.h"

namespace orrery::pcie {

struct EndpointSettings {
  std::uint32_t max_payload = 256;           // bytes: MPS of the hierarchy
  std::uint32_t max_read_request = 512;      // bytes
  std::uint32_t completion_unit = 256;       // completions end at multiples of this (MPS, or an RCB of 64/128)
  unsigned tags = 256;                       // outstanding reads, 1 … 1024
  std::uint64_t msix_address = 0xfee0'0000;  // where MSI-X writes go; synthetic, the table is the VMM's
};

class Endpoint final : public TlpSink, public DevicePort, private EventHandler, private ConfigObserver {
 public:
  // The model and the configuration space must outlive the endpoint. Calls model.attach().
  Endpoint(Simulation& simulation, std::string name, const EndpointSettings& settings, ConfigSpace& config,
           const BarDescriptions& bars, DeviceModel& model);
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  ~Endpoint();

  void connect(TlpSink& upstream) { egress_ = &upstream; }
  // A function learns its bus and device number from configuration writes (§2.2.9.1); the platform's
  // enumeration gives it here.
  void set_bdf(Bdf bdf) { bdf_ = bdf; }
  [[nodiscard]] Bdf bdf() const { return bdf_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] ComponentId id() const { return id_; }
  [[nodiscard]] const BarSet& bars() const { return bars_; }
  [[nodiscard]] ConfigSpace& config() { return config_; }
  [[nodiscard]] DeviceModel& model() { return model_; }
  // Transfers begun and not yet ended.
  [[nodiscard]] std::size_t transfers() const { return transfers_; }

  // TlpSink: what the link delivers.
  Picoseconds receive(TlpPtr tlp, Picoseconds delay) override;

  // DevicePort.
  void start(DmaTransfer& transfer) override;
  void cancel_all() override;
  void msix(unsigned vector) override;
  [[nodiscard]] const PortCounters& counters() const override { return counters_; }
  [[nodiscard]] Simulation& simulation() override { return simulation_; }

 private:
  struct Tag {
    DmaTransfer* transfer = nullptr;  // null while in_use: cancelled
    std::uint64_t address = 0;
    std::uint64_t offset = 0;  // of the transfer's buffer
    std::uint32_t length = 0;
    std::uint32_t received = 0;
    bool confirm = false;
    bool in_use = false;
  };
  class Queue {
   public:
    void push_back(DmaTransfer& t);
    void push_front(DmaTransfer& t);
    DmaTransfer* pop_front();
    void clear() { head_ = tail_ = nullptr; }
    [[nodiscard]] bool empty() const { return head_ == nullptr; }
    [[nodiscard]] const DmaTransfer* front() const { return head_; }

   private:
    DmaTransfer* head_ = nullptr;
    DmaTransfer* tail_ = nullptr;
  };

  void on_event(std::uint64_t argument) override;
  void on_command(std::uint16_t before, std::uint16_t after) override;
  void on_bars() override;
  void on_power_state(PowerState before, PowerState after) override;
  void on_reset(ResetKind kind) override;

  void pump();
  void schedule_pump(Picoseconds at);
  // Issues one TLP (functional mode: burst) of the transfer; false if it has to wait for a tag.
  bool issue(DmaTransfer& transfer);
  void issue_write(DmaTransfer& transfer);
  bool issue_read(DmaTransfer& transfer, std::uint64_t address, std::uint64_t offset, std::uint32_t length,
                  bool confirm);
  [[nodiscard]] static bool all_issued(const DmaTransfer& transfer);
  void maybe_finish(DmaTransfer& transfer);
  void deliver_done();
  void deliver(TlpPtr tlp);
  void transmit(TlpPtr tlp);
  void handle_completion(Tlp& tlp);
  void handle_request(const Tlp& tlp);
  void handle_config(const Tlp& tlp);
  void handle_write(const Tlp& tlp);
  void handle_read(const Tlp& tlp);
  void respond(TlpPtr completion, Picoseconds after);

  Simulation& simulation_;
  std::string name_;
  EndpointSettings settings_;
  ConfigSpace& config_;
  BarSet bars_;
  DeviceModel& model_;
  ComponentId id_;
  Bdf bdf_;
  TlpSink* egress_ = nullptr;
  Picoseconds link_free_;  // when the link has taken all that was handed to it
  Queue active_;           // transfers with something left to issue
  Queue starved_;          // the same, but waiting for a free tag
  Queue leaving_;          // writes that end when the link has taken their last TLP
  Queue done_;             // ended, listener not yet called
  std::vector<Tag> tags_;
  std::vector<std::uint16_t> free_tags_;
  std::size_t transfers_ = 0;
  std::uint64_t generation_ = 0;  // counts cancel_all(), so that a pump under way notices
  bool pumping_ = false;
  Picoseconds pump_at_ = Picoseconds::max();  // earliest scheduled pump
  std::vector<std::byte> read_buffer_;        // register reads longer than a TLP's inline storage
  PortCounters counters_;
};

}  // namespace orrery::pcie
