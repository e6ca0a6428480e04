// A small fabric of the cores, wired directly: what the tests and benchmarks of pcie/ run on.
//
// Root port 0 (socket 0) leads by a link to a switch with `switch_functions` functions, each behind a link;
// root port 1 (socket 1) leads to one more function. Every function has a domain of its own in the IOMMU.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pcie/capabilities.h"
#include "pcie/endpoint.h"
#include "pcie/link.h"
#include "pcie/page_table_pool.h"
#include "pcie/root_complex.h"
#include "pcie/switch.h"

namespace orrery::pcie::testing {

// BAR0: 4 KiB of registers that remember writes and read as a function of their offset. BAR2: memory.
class MemoryDevice : public DeviceModel {
 public:
  struct Write {
    std::uint64_t offset;
    std::vector<std::byte> bytes;
  };
  explicit MemoryDevice(std::size_t memory_bytes) : memory(memory_bytes) {}
  void attach(DevicePort& p) override { port = &p; }
  void bar_read(unsigned /*bar*/, std::uint64_t offset, std::span<std::byte> into) override {
    for (std::size_t i = 0; i < into.size(); ++i) {
      into[i] = register_byte(offset + i);
    }
    ++register_reads;
  }
  void bar_write(unsigned /*bar*/, std::uint64_t offset, std::span<const std::byte> from) override {
    writes.push_back({offset, {from.begin(), from.end()}});
    if (on_write) {
      on_write(offset);
    }
  }
  std::span<std::byte> bar_memory(unsigned bar, std::uint64_t offset, std::uint64_t size) override {
    return bar == 2 ? std::span(memory).subspan(offset, size) : std::span<std::byte>{};
  }
  [[nodiscard]] Picoseconds access_time(unsigned bar) const override {
    return bar == 2 ? memory_access : register_access;
  }
  void reset() override { ++resets; }
  static constexpr std::byte register_byte(std::uint64_t offset) { return static_cast<std::byte>(offset * 7 + 3); }

  DevicePort* port = nullptr;
  std::vector<std::byte> memory;
  std::vector<Write> writes;
  std::function<void(std::uint64_t)> on_write;
  unsigned register_reads = 0;
  unsigned resets = 0;
  Picoseconds register_access{40'000};
  Picoseconds memory_access{350'000};
};

inline constexpr std::uint64_t register_bar_bytes = 4096;

inline BarDescriptions function_bars(std::uint64_t memory_bytes) {
  BarDescriptions bars;
  bars[0].size = register_bar_bytes;
  bars[2] = {.size = memory_bytes, .is_64bit = true, .prefetchable = true};
  return bars;
}

struct Function {
  Function(Simulation& simulation, const std::string& name, const EndpointSettings& settings,
           std::uint64_t memory_bytes, Bdf bdf)
      : model(memory_bytes), config(HeaderType::endpoint, {.vendor_id = 0x1234, .device_id = 0x5678}) {
    define_bars(config, function_bars(memory_bytes));
    CapabilityBuilder builder(config);
    builder.add(PowerManagementCapability{});
    express = builder.add(PciExpressCapability{});
    endpoint = std::make_unique<Endpoint>(simulation, name, settings, config, function_bars(memory_bytes), model);
    endpoint->set_bdf(bdf);
  }
  // Places the BARs and turns memory decode and bus mastering on.
  void enable(std::uint64_t registers, std::uint64_t memory) {
    bar0 = registers;
    bar2 = memory;
    config.write_dword(0x10, static_cast<std::uint32_t>(registers));
    config.write_dword(0x18, static_cast<std::uint32_t>(memory));
    config.write_dword(0x1c, static_cast<std::uint32_t>(memory >> 32));
    set_command(command_bit::memory_space | command_bit::bus_master);
  }
  void set_command(std::uint16_t value) { config.write_dword(config_register::command, value, 0x3); }
  void function_level_reset() { config.write_dword(express + 8U, 0x8000, 0x3); }

  MemoryDevice model;
  ConfigSpace config;
  std::uint32_t express = 0;
  std::unique_ptr<Endpoint> endpoint;
  std::uint64_t bar0 = 0;
  std::uint64_t bar2 = 0;
};

// Host memory of regions; remote ones answer when the test says so.
class HostStub final : public HostMemory {
 public:
  struct Region {
    std::uint64_t start;
    std::vector<std::byte> bytes;
    unsigned node;
    Kind kind;
  };
  struct Pending {
    Region* region;
    std::uint64_t offset;
    std::span<std::byte> into;  // of a read
    std::vector<std::byte> from;
    bool write;
    HostMemoryListener* listener;
    std::uint64_t context;
  };
  Region& add(std::uint64_t start, std::size_t size, unsigned node = 0, Kind kind = Kind::direct) {
    regions.push_back(std::make_unique<Region>(Region{start, std::vector<std::byte>(size), node, kind}));
    return *regions.back();
  }
  [[nodiscard]] Region* region_of(std::uint64_t address) const {
    for (const auto& region : regions) {
      if (address - region->start < region->bytes.size()) {
        return region.get();
      }
    }
    return nullptr;
  }
  [[nodiscard]] Window find(Hpa address) const override {
    Region* region = region_of(address.value);
    if (region == nullptr) {
      return {};
    }
    const std::uint64_t offset = address.value - region->start;
    return {region->kind, region->kind == Kind::direct ? region->bytes.data() + offset : nullptr,
            region->bytes.size() - offset, region->node};
  }
  [[nodiscard]] Picoseconds access_time(unsigned node, unsigned from) const override {
    return node == from ? Picoseconds{90'000} : Picoseconds{198'000};
  }
  void device_reads(Hpa /*address*/, std::span<const std::byte> bytes) override { read_bytes += bytes.size(); }
  void device_wrote(Hpa /*address*/, std::span<const std::byte> bytes) override { written_bytes += bytes.size(); }
  void read_remote(Hpa address, std::span<std::byte> into, HostMemoryListener& listener,
                   std::uint64_t context) override {
    Region* region = region_of(address.value);
    pending.push_back({region, address.value - region->start, into, {}, false, &listener, context});
  }
  void write_remote(Hpa address, std::span<const std::byte> from, HostMemoryListener& listener,
                    std::uint64_t context) override {
    Region* region = region_of(address.value);
    pending.push_back(
        {region, address.value - region->start, {}, {from.begin(), from.end()}, true, &listener, context});
  }
  // Answers the oldest message.
  void answer(bool ok) {
    const Pending call = pending.front();
    pending.pop_front();
    if (ok && call.write) {
      std::memcpy(call.region->bytes.data() + call.offset, call.from.data(), call.from.size());
    } else if (ok) {
      std::memcpy(call.into.data(), call.region->bytes.data() + call.offset, call.into.size());
    }
    call.listener->on_host_memory(call.context, ok);
  }

  std::vector<std::unique_ptr<Region>> regions;
  std::deque<Pending> pending;
  std::uint64_t read_bytes = 0;
  std::uint64_t written_bytes = 0;
};

struct Interrupts final : InterruptController {
  struct Message {
    Bdf requester;
    std::uint64_t address;
    std::uint32_t data;
  };
  void interrupt(Bdf requester, std::uint64_t address, std::uint32_t data) override {
    messages.push_back({requester, address, data});
  }
  std::vector<Message> messages;
};

// What links carried. In functional mode bursts are taken apart if `singles` is set.
struct Seen {
  ComponentId link;
  TlpType type;
  std::uint64_t address;
  std::uint32_t length;
  std::uint32_t byte_count;
  std::uint32_t count;
  std::uint16_t tag;
  std::uint8_t first_be;
  std::uint8_t last_be;
  CompletionStatus status;
  std::vector<std::byte> bytes;
  Picoseconds start;
  Picoseconds end;
  bool operator==(const Seen&) const = default;
};
struct Sniffer final : TlpObserver {
  void on_link(ComponentId link, const Tlp& tlp, Picoseconds start, Picoseconds end) override {
    seen.push_back({link,
                    tlp.type,
                    tlp.address,
                    tlp.length,
                    tlp.byte_count,
                    tlp.count,
                    tlp.tag,
                    tlp.first_be,
                    tlp.last_be,
                    tlp.status,
                    {tlp.payload().begin(), tlp.payload().end()},
                    start,
                    end});
  }
  std::vector<Seen> seen;
};

struct DmaLog final : DmaListener {
  void on_dma_done(DmaTransfer& transfer) override {
    done.push_back(&transfer);
    if (then) {
      then(transfer);
    }
  }
  std::vector<DmaTransfer*> done;
  std::function<void(DmaTransfer&)> then;
};

// A sink that keeps what it gets.
struct Collector final : TlpSink {
  explicit Collector(Simulation& s) : simulation(s) {}
  Picoseconds receive(TlpPtr tlp, Picoseconds delay) override {
    tlps.push_back(std::move(tlp));
    times.push_back(simulation.now() + delay);
    return delay;
  }
  Simulation& simulation;
  std::vector<TlpPtr> tlps;
  std::vector<Picoseconds> times;
};

struct FabricOptions {
  bool timed = false;
  unsigned switch_functions = 3;
  std::uint64_t memory_bytes = 1U << 20;  // of a function's BAR2
  LinkSettings root_link{5, 16, {40'000}};
  LinkSettings device_link{5, 16, {40'000}};
  EndpointSettings endpoint;
  SwitchSettings switch_settings;
  RootComplexSettings root_complex;
  std::uint16_t acs = 0x1d;
  DomainMode domain = DomainMode::passthrough;
};

struct Fabric {
  static constexpr std::uint64_t dram = std::uint64_t{1} << 47;
  static constexpr std::uint64_t registers_base = 0xc000'0000;
  static constexpr std::uint64_t memory_base = 0x20'0000'0000;

  explicit Fabric(const FabricOptions& o = {})
      : options(o),
        tables(Hpa{std::uint64_t{1} << 46}, 1U << 16),
        iommu(tables),
        complex(timed(simulation, o.timed), "rc", o.root_complex, iommu, memory, interrupts),
        root_link(simulation, "uplink", o.root_link),
        other_link(simulation, "other", o.device_link),
        fabric_switch(simulation, "switch", with_ports(o.switch_settings, o.switch_functions)) {
    const unsigned n = o.switch_functions;
    const AcsControl acs = AcsControl::from_register(o.acs);
    complex.add_port("port0", 0, {1, 2 + n}, acs);
    complex.add_port("port1", 1, {20, 20}, acs);
    complex.connect(0, root_link.down);
    root_link.up.connect(complex.ingress(0));
    root_link.down.connect(fabric_switch.ingress(0));
    fabric_switch.connect(0, root_link.up);
    fabric_switch.set_bdf(Bdf::of(1, 0, 0));
    fabric_switch.set_bus_range(0, {2, 2 + n});
    complex.connect(1, other_link.down);
    other_link.up.connect(complex.ingress(1));
    for (unsigned i = 0; i <= n; ++i) {
      const bool below_switch = i < n;
      const Bdf bdf = below_switch ? Bdf::of(3 + i, 0, 0) : Bdf::of(20, 0, 0);
      functions.push_back(
          std::make_unique<Function>(simulation, "dev" + std::to_string(i), o.endpoint, o.memory_bytes, bdf));
      Function& f = *functions.back();
      Link* link = &other_link;
      if (below_switch) {
        device_links.push_back(std::make_unique<Link>(simulation, "link" + std::to_string(i), o.device_link));
        link = device_links.back().get();
        fabric_switch.set_bus_range(i + 1, {3 + i, 3 + i});
        fabric_switch.set_acs(i + 1, acs);
        fabric_switch.connect(i + 1, link->down);
        link->up.connect(fabric_switch.ingress(i + 1));
      }
      link->down.connect(*f.endpoint);
      f.endpoint->connect(link->up);
      f.enable(registers_base + i * register_bar_bytes, memory_base + i * o.memory_bytes);
      add_window(i, f.bar0, register_bar_bytes);
      add_window(i, f.bar2, o.memory_bytes);
      domains.push_back(*iommu.create_domain(o.domain));
      iommu.attach(bdf, domains.back());
    }
  }
  void add_window(unsigned index, std::uint64_t start, std::uint64_t size) {
    const bool below_switch = index < options.switch_functions;
    complex.add_window(below_switch ? 0 : 1, start, size);
    if (below_switch) {
      fabric_switch.add_window(index + 1, start, size);
    }
  }
  Function& operator[](unsigned i) { return *functions[i]; }
  void set_acs(std::uint16_t value) {
    for (unsigned i = 1; i <= options.switch_functions; ++i) {
      fabric_switch.set_acs(i, AcsControl::from_register(value));
    }
  }
  // Runs until nothing is pending.
  void run() {
    while (simulation.events.run_one()) {
    }
  }
  void start(unsigned index, DmaTransfer& transfer, DmaListener* listener = nullptr) {
    transfer.listener = listener;
    functions[index]->endpoint->start(transfer);
  }
  static DmaTransfer transfer(DmaTransfer::Kind kind, std::uint64_t address, std::span<std::byte> bytes,
                              bool confirm = false) {
    DmaTransfer t;
    t.kind = kind;
    t.address = address;
    t.length = bytes.size();
    t.buffer = bytes.data();
    t.confirm = confirm;
    return t;
  }

  FabricOptions options;
  Simulation simulation;
  PageTablePool tables;
  Iommu iommu;
  HostStub memory;
  Interrupts interrupts;
  RootComplex complex;
  Link root_link;
  Link other_link;
  Switch fabric_switch;
  std::vector<std::unique_ptr<Link>> device_links;
  std::vector<std::unique_ptr<Function>> functions;
  std::vector<DomainId> domains;

 private:
  static Simulation& timed(Simulation& s, bool on) {
    s.timed = on;
    return s;
  }
  static SwitchSettings with_ports(SwitchSettings s, unsigned ports) {
    s.downstream_ports = ports;
    return s;
  }
};

}  // namespace orrery::pcie::testing
