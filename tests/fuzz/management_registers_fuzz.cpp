// Fuzz target: a hostile firmware. Any access to the management registers, as the machine of a firmware that isn't ours
// makes them, with the data path behind them.
//
// Input: steps of a kind, then little-endian words. Below 0xc0: a write of the word to a register of the table (kind
// modulo its size). 0xc0 … 0xdf: a write of the second word at the first as offset. 0xe0 … 0xe7: a read at that offset.
// 0xe8 … 0xf3: time passes. 0xf4 …: a doorbell of the guest, a reset of its function, a sub-word access, the machine
// goes and another comes.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "common/log.h"
#include "fabric/packet_pool.h"
#include "systemc_models/rnic/firmware_function.h"
#include "systemc_models/rnic/mlx5/mlx5_rnic.h"
#include "systemc_models/rnic/verbs_data_path.h"
#include "tests/fuzz/require.h"
#include "tests/systemc_models/rnic/memory_port.h"

namespace orrery::test {
namespace {

namespace reg = rnic::reg;

class Steps {
 public:
  Steps(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  [[nodiscard]] bool empty() const { return left_ == 0; }
  std::uint8_t kind() {
    --left_;
    return *data_++;
  }
  std::uint32_t word() {
    std::uint32_t value = 0;
    const std::size_t bytes = left_ < sizeof value ? left_ : sizeof value;
    std::memcpy(&value, data_, bytes);
    data_ += bytes;
    left_ -= bytes;
    return value;
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

constexpr std::uint32_t table[] = {
    reg::context_kind,
    reg::context_index,
    reg::context_op,
    reg::context_value,
    reg::context_data,
    reg::context_data + 4,
    reg::context_data + 8,
    reg::context_data + 12,
    reg::context_data + 16,
    reg::context_data + 20,
    reg::context_data + 24,
    reg::context_data + 28,
    reg::context_data + 32,
    reg::context_data + 36,
    reg::context_data + 40,
    reg::context_data + 44,
    reg::context_data + 48,
    reg::context_data + 64,
    reg::context_data + 80,
    reg::context_data + 96,
    reg::context_data + 128,
    reg::translation_index,
    reg::translation_low,
    reg::translation_high,
    reg::bulk_local,
    reg::bulk_index,
    reg::bulk_count,
    reg::bulk_flags,
    reg::bulk_start,
    reg::eqe_function,
    reg::eqe_eqn,
    reg::eqe_type,
    reg::eqe_push,
    reg::fifo_pop,
    reg::work_qp,
    reg::work_complete,
    reg::init_select,
    reg::init_segment + 0x14,
    reg::dma_function,
    reg::dma_address_low,
    reg::dma_address_high,
    reg::dma_local,
    reg::dma_length,
    reg::dma_control,
    reg::dma_status,
    reg::ready,
    reg::event_pending,
    reg::event_enable,
    reg::event_set,
    reg::timer_low,
    reg::timer_high,
    reg::watchdog_period,
    reg::watchdog_kick,
    reg::fatal_syndrome,
    reg::panic,
    reg::trace_commit,
    reg::wait,
    reg::init_written_low,
    reg::function_reset_low,
    reg::command_doorbell,
    reg::nic_interface,
    reg::crash_record + 64,
    reg::sram,
    reg::sram + 8,
};

constexpr std::uint64_t pause_events = 500;
constexpr std::uint32_t most_bulk = 1U << 12;  // longer fills only take longer

struct Interrupts final : pcie::InterruptSink {
  void msix(unsigned vector) override { fuzz::require(vector == 0, "there is one interrupt"); }
};

}  // namespace
}  // namespace orrery::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace orrery;
  using namespace orrery::test;
  set_log_level(LogLevel::off);  // crashes are what it is about
  pcie::Simulation simulation;
  fabric::PacketPool pool;
  DirectPort wire(simulation, pool);
  rnic::Mlx5Settings settings;
  settings.with_firmware = false;
  settings.management.translation_entries = 1U << 16;
  rnic::give_identity(settings.management, 0, 0);
  rnic::VerbsSettings verbs;
  verbs.translation_entries = settings.management.translation_entries;
  MemoryPort memory(simulation, 1U << 20);
  {
    rnic::Mlx5Rnic device(settings,
                          [&](rnic::EventSink& sink) { return rnic::make_verbs_data_path(verbs, sink, wire, pool); });
    device.attach(memory);
    Interrupts interrupts;
    rnic::FirmwareFunction function("rnic0-management", device.management(), [] {});
    device.management().bind(function);
    device.management().power_on();
    function.set_interrupt_sink(&interrupts);
    const auto write = [&](std::uint32_t offset, std::uint32_t value) {
      if (offset == reg::bulk_count) {
        value %= most_bulk;
      }
      if (offset % 4 == 0 && offset < rnic::firmware_bar::registers_bytes) {
        function.bar_write(0, offset, std::as_bytes(std::span(&value, 1)));
      }
    };
    const auto pass = [&](std::uint64_t events) {
      for (std::uint64_t i = 0; i < events && simulation.events.run_one(); ++i) {
      }
    };
    Steps steps(data, size);
    while (!steps.empty()) {
      const std::uint8_t kind = steps.kind();
      if (kind < 0xc0) {
        write(table[kind % std::size(table)], steps.word());
      } else if (kind < 0xe0) {
        const std::uint32_t offset = steps.word() % rnic::firmware_bar::registers_bytes & ~3U;
        write(offset, steps.word());
      } else if (kind < 0xe8) {
        std::uint32_t value = 0;
        const std::uint32_t offset = steps.word() % rnic::firmware_bar::registers_bytes & ~3U;
        function.bar_read(0, offset, std::as_writable_bytes(std::span(&value, 1)));
      } else if (kind < 0xf4) {
        pass(pause_events);
      } else if (kind < 0xf6) {
        // Doorbells of the data path, in the first pages that may be a context's.
        const std::array<std::uint32_t, 2> doorbell{steps.word(), steps.word()};
        constexpr std::array<std::uint64_t, 3> places{rnic::mlx5::uar_send, rnic::mlx5::uar_cq, rnic::mlx5::uar_eq_arm};
        const std::uint64_t page = rnic::mlx5::first_uar + doorbell[0] % 4;
        device.bar_write(0, page * rnic::mlx5::page_bytes + places[doorbell[1] % places.size()],
                         std::as_bytes(std::span(doorbell)));
      } else if (kind < 0xf8) {
        std::uint32_t slots = steps.word();
        device.bar_write(0, 0x14, std::as_bytes(std::span(&slots, 1)));
        device.bar_write(0, 0x18, std::as_bytes(std::span(&slots, 1)));
      } else if (kind < 0xfa) {
        memory.cancel_all();
        device.reset();
      } else if (kind < 0xfd) {
        std::uint32_t value = steps.word();
        function.bar_write(0, value % 0x1000, std::as_bytes(std::span(&value, 1)).first(1 + value % 4));
      } else {
        function.disconnect();
        function.set_interrupt_sink(&interrupts);
      }
    }
    pass(10 * pause_events);
    // Whatever was done, the next machine finds an RNIC.
    function.disconnect();
    function.set_interrupt_sink(&interrupts);
    std::uint32_t id = 0;
    function.bar_read(0, reg::id, std::as_writable_bytes(std::span(&id, 1)));
    fuzz::require(id == reg::id_value, "the registers are there");
    memory.cancel_all();
    device.management().unbind_processor();
  }
  return 0;
}
