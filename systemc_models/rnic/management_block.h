// The RNIC's management block: the registers (firmware/interface/registers.h) through which the firmware sees what
// guests do and drives the hardware, with SRAM, DMA engine, timers, watchdog and event FIFO.
//
// Between three parties, none of which ever waits for another: the BAR adapter reports guest accesses and reads back
// what guests are shown; the firmware's processor is told when an enabled event is pending; the data path is
// driven through ControlPlane. Simulation thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "common/event_queue.h"
#include "common/time.h"
#include "firmware/interface/registers.h"
#include "firmware/native/native_firmware.h"
#include "pcie/device.h"
#include "systemc_models/rnic/control_plane.h"
#include "systemc_models/rnic/management_faults.h"

namespace orrery::rnic {

// Where the firmware runs.
class Processor {
 public:
  // Forget everything, boot.
  virtual void restart() = 0;
  // An enabled event is pending: run until none is, or for a while. A processor of its own is told once for each WAIT
  // of its firmware, and works while time goes on.
  virtual void run() = 0;
  // Whether the firmware has done its work when run() returns.
  [[nodiscard]] virtual bool runs_by_calls() const { return true; }

 protected:
  ~Processor() = default;
};

struct ManagementSettings {
  std::uint32_t functions = 1;  // 1 … max_functions
  reg::PortType port_type = reg::PortType::infiniband;
  std::uint32_t vectors = 32;
  std::uint32_t uar_pages = 8192;
  std::uint32_t translation_entries = 1U << 22;
  std::uint64_t guid = 0;
  std::uint64_t mac = 0;
  std::uint32_t lid = 1;
  std::uint32_t link_gbps = 400;
  std::uint32_t board = 0;
  // From an event to the firmware's looking at it, each time. Functional mode: a nanosecond.
  Picoseconds step_time{1'000'000};
  // Fault injection (FAULT_* registers), as set at power on.
  std::uint32_t fault_opcode = 0;  // 0: none
  std::uint32_t fault_status = 0;
  std::uint32_t fault_count = 0xffff'ffffU;
};

// A command that the firmware has answered.
struct CommandRecord {
  Picoseconds time;
  // From the guest's doorbell to the firmware's taking the slot, and from there to the answer.
  Picoseconds waited;
  Picoseconds handled;
  std::uint32_t function = 0;
  std::uint16_t opcode = 0;
  std::uint16_t op_mod = 0;
  std::uint8_t delivery = 0;
  std::uint8_t status = 0;
  std::uint32_t syndrome = 0;
};

class CommandObserver {
 public:
  virtual void on_command(const CommandRecord& record) = 0;

 protected:
  ~CommandObserver() = default;
};

struct ManagementCounters {
  std::uint64_t commands = 0;
  std::uint64_t commands_failed = 0;    // status or delivery status not 0
  std::uint64_t doorbells_ignored = 0;  // before the firmware was ready, or without a queue
  std::uint64_t steps = 0;              // of the firmware
  std::uint64_t register_reads = 0;     // by the firmware
  std::uint64_t register_writes = 0;
  std::uint64_t dma_bytes = 0;
  std::uint64_t crashes = 0;
};

class ManagementBlock final : public firmware::RegisterAccess,
                              public EventSink,
                              private pcie::DmaListener,
                              private EventHandler {
 public:
  // Throws Error for settings out of range.
  explicit ManagementBlock(const ManagementSettings& settings);

  // Both before power_on(); they outlive the block's use. Without a processor the device never gets ready.
  void bind(ControlPlane& control) { control_ = &control; }
  void bind(Processor& processor) { processor_ = &processor; }
  // The processor is about to go, and nobody comes after it: the firmware is dead from now on.
  void unbind_processor() { processor_ = nullptr; }
  void observe(CommandObserver* observer) { observer_ = observer; }
  void attach(std::uint32_t function, pcie::DevicePort& port);
  // Starts the firmware, once.
  void power_on();
  // The processor has ended or was reset from outside: a crash (ResetCause::lost).
  void processor_lost();
  // While held, the watchdog doesn't count: a debugger has stopped the processor.
  void hold_watchdog(bool held);
  // The firmware sleeps: it has written WAIT and no event has woken it since.
  [[nodiscard]] bool asleep() const { return waiting_; }
  // It has crashed and is restarted by the next event.
  [[nodiscard]] bool crashed() const { return restart_scheduled_; }

  [[nodiscard]] const ManagementSettings& settings() const { return settings_; }
  [[nodiscard]] const ManagementCounters& counters() const { return counters_; }
  // Of the firmware's accesses from now on, whatever its target.
  [[nodiscard]] ManagementFaults& faults() { return faults_; }
  // A word of the crash record, 0 … crash_words - 1, and of FAULT_*; not an access of the firmware's.
  [[nodiscard]] std::uint32_t crash_word(std::size_t word) const { return crash_record_.at(word); }
  void fail_commands(std::uint32_t opcode, std::uint32_t status, std::uint32_t syndrome, std::uint32_t count) {
    fault_ = {opcode, status, syndrome, count};
  }

  // ---- The firmware's side --------------------------------------------------------------------------------------
  std::uint32_t read32(std::uint32_t offset) override;
  void write32(std::uint32_t offset, std::uint32_t value) override;
  // An access that isn't a whole aligned word.
  void refuse_access() { bad_access(); }
  // Whether an enabled event is pending.
  [[nodiscard]] bool interrupt() const { return (pending() & event_enable_) != 0; }

  // ---- The guest's side, through the BAR adapter -------------------------------------------------------------------
  [[nodiscard]] bool ready() const { return ready_; }
  [[nodiscard]] std::uint32_t nic_interface(std::uint32_t function) const { return functions_[function].interface; }
  // Shown in place of the firmware's own health syndrome; 0: none.
  [[nodiscard]] std::uint32_t fatal_syndrome(std::uint32_t function) const { return functions_[function].fatal; }
  // The raw bytes of the init segment.
  [[nodiscard]] std::span<const std::byte> init_segment(std::uint32_t function) const {
    return functions_[function].init_segment;
  }
  void guest_queue_high(std::uint32_t function, std::uint32_t high);
  // The low half of the command queue's address, and the interface state that the guest asks for. Only with `full` is
  // the address taken over.
  void guest_queue_low(std::uint32_t function, std::uint32_t low, std::uint32_t interface);
  void guest_doorbell(std::uint32_t function, std::uint32_t slots);
  // A reset of the function; its endpoint has cancelled all DMA.
  void guest_reset(std::uint32_t function);

  // ---- The data path's side ----------------------------------------------------------------------------------------
  void on_hardware_event(const HardwareEvent& event) override;
  void on_context_idle(ContextKind kind, std::uint32_t index) override;

 private:
  struct FunctionState {
    pcie::DevicePort* port = nullptr;
    std::uint32_t doorbell = 0;
    std::array<Picoseconds, 32> rung{};  // by slot: when its doorbell bit was set
    Picoseconds taken_rung;              // of the slot that the firmware took last
    Picoseconds taken;
    std::uint64_t queue = 0;
    bool has_queue = false;
    std::uint32_t interface = 0;
    std::uint32_t fatal = 0;
    std::uint64_t window_base = 0;
    std::uint64_t window_limit = 0;
    std::vector<std::byte> init_segment;
  };
  struct Channel {
    std::array<std::uint32_t, 5> setup{};  // FUNCTION … LENGTH
    reg::DmaStatus status = reg::DmaStatus::idle;
    std::uint32_t function = 0;
    pcie::DmaTransfer transfer;
  };
  static constexpr std::uint32_t bulk_chunk = 4096;  // translation entries written at once
  enum class Wake : std::uint64_t { step = 0, timer = 1, watchdog = 2, restart = 3 };

  void on_dma_done(pcie::DmaTransfer& transfer) override;
  void on_event(std::uint64_t argument) override;

  [[nodiscard]] std::uint32_t pending() const;
  [[nodiscard]] std::uint64_t functions_where(bool (*holds)(const FunctionState&)) const;
  [[nodiscard]] bool processor_runs_by_calls() const { return processor_ == nullptr || processor_->runs_by_calls(); }
  void wake();
  void step();
  void arm_watchdog();
  void disarm_watchdog();
  void on_watchdog();
  void crash(reg::ResetCause cause, std::uint32_t syndrome);
  void restart();
  void drop_dma(std::uint32_t function);
  void schedule(Wake what, Picoseconds at, std::uint64_t generation);
  [[nodiscard]] Picoseconds now() const;

  [[nodiscard]] std::uint32_t read_register(std::uint32_t offset);
  void write_register(std::uint32_t offset, std::uint32_t value);
  void take_slots(FunctionState& function, std::uint32_t slots);
  [[nodiscard]] std::uint32_t read_fixed(std::uint32_t offset);
  [[nodiscard]] std::uint32_t read_function(std::uint32_t offset);
  [[nodiscard]] std::uint32_t read_dma(std::uint32_t offset) const;
  [[nodiscard]] std::uint32_t read_windows(std::uint32_t offset);
  [[nodiscard]] std::uint32_t* window(std::uint32_t offset);
  void write_fixed(std::uint32_t offset, std::uint32_t value);
  void write_function(std::uint32_t offset, std::uint32_t value);
  void write_dma(std::uint32_t offset, std::uint32_t value);
  void write_windows(std::uint32_t offset, std::uint32_t value);
  void context_operation(std::uint32_t value);
  void bulk(std::uint32_t value);
  void load_work_request(std::uint32_t qpn);
  void complete_work_request(std::uint32_t value);
  void push_event();
  void start_dma(Channel& channel, std::uint32_t value);
  void commit_trace(std::uint32_t function);
  std::uint32_t bad_access();

  ManagementSettings settings_;
  ControlPlane* control_ = nullptr;
  Processor* processor_ = nullptr;
  CommandObserver* observer_ = nullptr;
  pcie::Simulation* simulation_ = nullptr;
  ManagementCounters counters_;
  ManagementFaults faults_;

  bool ready_ = false;
  reg::ResetCause reset_cause_ = reg::ResetCause::power_on;
  std::uint32_t event_enable_ = 0;
  std::uint32_t latched_ = 0;
  std::uint32_t bad_accesses_ = 0;
  std::uint32_t time_high_ = 0;  // latched
  std::uint64_t timer_ = 0;      // microseconds
  std::uint64_t timer_generation_ = 0;
  bool step_scheduled_ = false;
  bool waiting_ = false;
  bool watchdog_held_ = false;
  bool restart_scheduled_ = false;
  std::uint32_t watchdog_period_ = 0;
  std::uint64_t watchdog_generation_ = 0;
  bool watchdog_armed_ = false;
  bool watchdog_warned_ = false;
  std::uint32_t fatal_syndrome_ = 1;
  std::array<std::uint32_t, 4> fault_{};
  std::array<std::uint32_t, 3> trace_{};

  std::vector<FunctionState> functions_;
  std::uint64_t init_written_ = 0;
  std::uint64_t reset_functions_ = 0;
  std::array<Channel, reg::dma_channels> channels_;

  std::uint32_t context_kind_ = 0;
  std::uint32_t context_index_ = 0;
  std::uint32_t context_value_ = 0;
  reg::ContextStatus context_status_ = reg::ContextStatus::ok;
  std::array<std::uint32_t, reg::context_words> context_data_{};
  std::uint32_t translation_index_ = 0;
  std::uint32_t translation_low_ = 0;
  std::array<std::uint32_t, 4> bulk_{};  // LOCAL, INDEX, COUNT, FLAGS
  std::uint32_t bulk_function_ = 0;
  reg::ContextStatus bulk_status_ = reg::ContextStatus::ok;
  std::vector<std::uint64_t> entries_;   // of a bulk transfer, on its way
  std::array<std::uint32_t, 10> eqe_{};  // FUNCTION, EQN, TYPE, DATA
  reg::ContextStatus eqe_status_ = reg::ContextStatus::ok;
  std::deque<HardwareEvent> fifo_;
  std::uint32_t fifo_lost_ = 0;
  std::uint32_t work_qp_ = none;
  std::uint32_t work_length_ = 0;
  std::array<std::uint32_t, reg::work_words> work_data_{};
  std::uint32_t init_select_ = 0;
  std::array<std::uint32_t, reg::crash_words> crash_record_{};
  std::vector<std::byte> sram_;
};

}  // namespace orrery::rnic
