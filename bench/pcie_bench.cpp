// How fast the PCIe fabric is: TLPs and bursts across it, and its event queue.
//
// "Three hops" is endpoint -> link -> switch -> link -> endpoint: two links and a switch between the sender and
// the receiver. items_per_second counts TLPs from end to end, single ones unless a row says burst; a row with
// "Modules" does it over TLM-2.0 sockets.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "pcie/modules.h"
#include "tests/pcie/fabric.h"

namespace orrery::pcie {
namespace {

using testing::Fabric;
using testing::FabricOptions;
using testing::Function;

// Two functions below a switch, joined by cores or by modules; requests go straight to the peer.
class Hops {
 public:
  static constexpr std::uint64_t memory_bytes = 4U << 20;
  virtual ~Hops() = default;
  Simulation simulation;
  std::unique_ptr<Function> sender;
  std::unique_ptr<Function> receiver;
  TlpSink* first_link = nullptr;

 protected:
  static constexpr std::uint64_t sender_base = 0x20'0000'0000;
  static constexpr std::uint64_t receiver_base = 0x30'0000'0000;
  static SwitchSettings switch_settings() { return {2, {115'000}}; }
  static LinkSettings link_settings() { return {5, 16, {40'000}}; }
  static void route(Switch& core) {
    core.set_bus_range(1, {3, 3});
    core.set_bus_range(2, {4, 4});
    core.add_window(1, sender_base, memory_bytes);
    core.add_window(2, receiver_base, memory_bytes);
  }
  void make_functions() {
    sender = std::make_unique<Function>(simulation, "sender", EndpointSettings{}, memory_bytes, Bdf::of(3, 0, 0));
    receiver = std::make_unique<Function>(simulation, "receiver", EndpointSettings{}, memory_bytes, Bdf::of(4, 0, 0));
    sender->enable(0xc000'0000, sender_base);
    receiver->enable(0xc000'1000, receiver_base);
  }
};

class CoreHops final : public Hops {
 public:
  explicit CoreHops(bool timed)
      : a_(simulation, "a", link_settings()),
        b_(simulation, "b", link_settings()),
        switch_(simulation, "switch", switch_settings()) {
    simulation.timed = timed;
    route(switch_);
    make_functions();
    sender->endpoint->connect(a_.up);
    a_.up.connect(switch_.ingress(1));
    switch_.connect(1, a_.down);
    a_.down.connect(*sender->endpoint);
    receiver->endpoint->connect(b_.up);
    b_.up.connect(switch_.ingress(2));
    switch_.connect(2, b_.down);
    b_.down.connect(*receiver->endpoint);
    first_link = &a_.up;
  }

 private:
  Link a_;
  Link b_;
  Switch switch_;
};

// Modules can be elaborated once in a process: one fabric serves every row, its mode is switched at rest.
class ModuleHops final : public sc_core::sc_module, public Hops {
 public:
  explicit ModuleHops(const sc_core::sc_module_name& name)
      : sc_module(name),
        a_("a", simulation, link_settings()),
        b_("b", simulation, link_settings()),
        switch_("switch", simulation, switch_settings()) {
    use_tlm_carriers(simulation.tlps);
    route(switch_.core);
    make_functions();
    sender_port_ = std::make_unique<TlmPort>("sender", *sender->endpoint);
    receiver_port_ = std::make_unique<TlmPort>("receiver", *receiver->endpoint);
    sender->endpoint->connect(sender_port_->tx);
    receiver->endpoint->connect(receiver_port_->tx);
    root_ = std::make_unique<TlmPort>("root", nowhere_);
    bind(a_.lower, *sender_port_);
    bind(b_.lower, *receiver_port_);
    bind(*switch_.ports[1], a_.upper);
    bind(*switch_.ports[2], b_.upper);
    bind(*root_, *switch_.ports[0]);
    first_link = &sender_port_->tx;
  }
  static ModuleHops& get(bool timed) {
    static ModuleHops hops("hops");
    static const bool elaborated = [] {
      sc_core::sc_start(sc_core::SC_ZERO_TIME);
      return true;
    }();
    static_cast<void>(elaborated);
    hops.simulation.timed = timed;
    return hops;
  }

 private:
  struct Nowhere final : TlpSink {
    Picoseconds receive(TlpPtr /*tlp*/, Picoseconds delay) override { return delay; }
  } nowhere_;
  LinkModule a_;
  LinkModule b_;
  SwitchModule switch_;
  std::unique_ptr<TlmPort> sender_port_;
  std::unique_ptr<TlmPort> receiver_port_;
  std::unique_ptr<TlmPort> root_;
};

void run_events(Simulation& simulation) {
  while (simulation.events.run_one()) {
  }
}

// Single memory writes, handed to the sender's link one after the other.
void single_writes(benchmark::State& state, Hops& hops) {
  const std::vector<std::byte> payload(static_cast<std::size_t>(state.range(0)), std::byte{0x5a});
  constexpr unsigned batch = 1024;
  for (auto _ : state) {
    std::uint64_t address = hops.receiver->bar2;
    for (unsigned i = 0; i < batch; ++i) {
      TlpPtr tlp = hops.simulation.tlps.make();
      tlp->type = TlpType::MWr;
      tlp->requester = hops.sender->endpoint->bdf();
      tlp->address = address;
      if (hops.simulation.timed) {
        tlp->store(payload);
      } else {
        tlp->borrow(payload);
      }
      hops.first_link->receive(std::move(tlp), {});
      address += payload.size();
    }
    run_events(hops.simulation);
  }
  if (hops.simulation.tlps.outstanding() != 0 || hops.receiver->model.memory[0] != payload[0]) {
    state.SkipWithError("the TLPs did not arrive");
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()) * batch);
}

// Single memory reads of 64 bytes and their completions: two TLPs an item, there and back.
void single_reads(benchmark::State& state, Hops& hops) {
  std::vector<std::byte> buffer(std::size_t{256} * 64);
  std::vector<DmaTransfer> transfers(256);
  for (auto _ : state) {
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      transfers[i].kind = DmaTransfer::Kind::read;
      transfers[i].address = hops.receiver->bar2 + i * 64;
      transfers[i].length = 64;
      transfers[i].buffer = buffer.data() + i * 64;
      hops.sender->endpoint->start(transfers[i]);
    }
    run_events(hops.simulation);
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * transfers.size()) * 2);
}

// A device's DMA write of 1 MiB by its endpoint: bursts in functional mode, TLPs of 256 bytes in timed mode.
void dma_write(benchmark::State& state, Hops& hops) {
  std::vector<std::byte> buffer(1U << 20, std::byte{0x77});
  DmaTransfer transfer = Fabric::transfer(DmaTransfer::Kind::write, hops.receiver->bar2, buffer);
  for (auto _ : state) {
    hops.sender->endpoint->start(transfer);
    run_events(hops.simulation);
  }
  if (hops.receiver->model.memory[(1U << 20) - 1] != buffer[0]) {
    state.SkipWithError("the bytes did not arrive");
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()) * (1 << 20) / 256);
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * (1 << 20));
}
void dma_read(benchmark::State& state, Hops& hops) {
  std::vector<std::byte> buffer(1U << 20);
  DmaTransfer transfer = Fabric::transfer(DmaTransfer::Kind::read, hops.receiver->bar2, buffer);
  for (auto _ : state) {
    hops.sender->endpoint->start(transfer);
    run_events(hops.simulation);
  }
  // Requests of 512 bytes, completions of 256.
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()) * (1 << 20) / 512 * 3);
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * (1 << 20));
}

template <void (*Row)(benchmark::State&, Hops&), bool Timed>
void on_cores(benchmark::State& state) {
  CoreHops hops(Timed);
  Row(state, hops);
}
template <void (*Row)(benchmark::State&, Hops&), bool Timed>
void on_modules(benchmark::State& state) {
  Row(state, ModuleHops::get(Timed));
}

BENCHMARK(on_cores<single_writes, false>)->Name("Functional/SingleWrites")->Arg(4)->Arg(64)->Arg(256);
BENCHMARK(on_cores<single_writes, true>)->Name("Timed/SingleWrites")->Arg(4)->Arg(64)->Arg(256);
BENCHMARK(on_modules<single_writes, false>)->Name("Functional/Modules/SingleWrites")->Arg(4)->Arg(64)->Arg(256);
BENCHMARK(on_modules<single_writes, true>)->Name("Timed/Modules/SingleWrites")->Arg(4)->Arg(64)->Arg(256);
BENCHMARK(on_cores<single_reads, false>)->Name("Functional/SingleReads");
BENCHMARK(on_cores<single_reads, true>)->Name("Timed/SingleReads");
BENCHMARK(on_cores<dma_write, false>)->Name("Functional/BurstWrite");
BENCHMARK(on_cores<dma_read, false>)->Name("Functional/BurstRead");
BENCHMARK(on_modules<dma_write, false>)->Name("Functional/Modules/BurstWrite");
BENCHMARK(on_modules<dma_read, false>)->Name("Functional/Modules/BurstRead");
BENCHMARK(on_cores<dma_write, true>)->Name("Timed/DmaWrite");
BENCHMARK(on_cores<dma_read, true>)->Name("Timed/DmaRead");
BENCHMARK(on_modules<dma_write, true>)->Name("Timed/Modules/DmaWrite");
BENCHMARK(on_modules<dma_read, true>)->Name("Timed/Modules/DmaRead");

// Host memory through root complex and IOMMU (4 KiB pages), one endpoint.
void host_memory(benchmark::State& state, bool is_timed, DmaTransfer::Kind kind) {
  FabricOptions options;
  options.timed = is_timed;
  options.domain = DomainMode::translated;
  Fabric fabric(options);
  fabric.memory.add(Fabric::dram, 1U << 20);
  for (std::uint64_t page = 0; page < 256; ++page) {
    fabric.iommu.map(fabric.domains[0], Iova{0x1000'0000 + page * 4096}, Hpa{Fabric::dram + page * 4096}, 4096,
                     {true, true});
  }
  std::vector<std::byte> buffer(1U << 20);
  DmaTransfer transfer = Fabric::transfer(kind, 0x1000'0000, buffer);
  for (auto _ : state) {
    fabric.start(0, transfer);
    fabric.run();
  }
  if (transfer.status != CompletionStatus::success) {
    state.SkipWithError("the transfer failed");
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * (1 << 20));
}
BENCHMARK_CAPTURE(host_memory, FunctionalWrite, false, DmaTransfer::Kind::write);
BENCHMARK_CAPTURE(host_memory, FunctionalRead, false, DmaTransfer::Kind::read);
BENCHMARK_CAPTURE(host_memory, TimedWrite, true, DmaTransfer::Kind::write);
BENCHMARK_CAPTURE(host_memory, TimedRead, true, DmaTransfer::Kind::read);

// One event handled and one scheduled, with a constant number pending.
struct Hold final : EventHandler {
  void on_event(std::uint64_t state) override {
    state = state * 6364136223846793005U + 1442695040888963407U;
    queue.schedule(queue.now() + Picoseconds{1 + (state >> 44)}, *this, state);  // up to 1 us ahead
  }
  EventQueue queue;
};
void event_queue(benchmark::State& state) {
  Hold hold;
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    hold.queue.schedule(Picoseconds{static_cast<std::uint64_t>(i)}, hold,
                        static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15U);
  }
  for (auto _ : state) {
    hold.queue.run_one();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()));
}
BENCHMARK(event_queue)->Name("EventQueue")->Arg(1)->Arg(1'000)->Arg(100'000);

}  // namespace
}  // namespace orrery::pcie
