// The cores behind TLM-2.0 sockets: the same TLPs at the same picoseconds as wired directly, and the points of the
// base protocol that tlm_port.h states. Each test elaborates anew, so each needs a process of its own (as ctest does).
#include "pcie/tlm_port.h"

#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "pcie/modules.h"
#include "tests/pcie/fabric.h"

// libsystemc wants it beside the test's own main().
int sc_main(int /*argc*/, char* /*argv*/[]) {
  return 0;
}

namespace orrery::pcie::tlm_port_test {
namespace {

using testing::Collector;
using testing::DmaLog;
using testing::Fabric;
using testing::FabricOptions;
using testing::Function;
using testing::HostStub;
using testing::Interrupts;
using testing::Seen;
using testing::Sniffer;
using Kind = DmaTransfer::Kind;

// Somebody's monitor in a link's way, one direction: it sees a payload for every TLP and passes it on.
SC_MODULE(Monitor), tlm::tlm_fw_transport_if<>, tlm::tlm_bw_transport_if<> {
  explicit Monitor(const sc_core::sc_module_name& name) : sc_module(name), in("in"), out("out") {
    in.bind(*this);
    out.bind(*this);
  }
  tlm::tlm_sync_enum nb_transport_fw(tlm::tlm_generic_payload & payload, tlm::tlm_phase & phase,
                                     sc_core::sc_time & delay) override {
    TlpExtension* extension = nullptr;
    payload.get_extension(extension);
    EXPECT_NE(extension, nullptr);
    EXPECT_EQ(payload.get_address(), extension->tlp->address);
    EXPECT_EQ(payload.get_data_length(), extension->tlp->length);
    EXPECT_EQ(payload.get_data_ptr(), reinterpret_cast<unsigned char*>(extension->tlp->data));
    EXPECT_EQ(payload.is_write(), extension->tlp->type == TlpType::MWr);
    ++payloads;
    payload.acquire();
    const tlm::tlm_sync_enum result = out->nb_transport_fw(payload, phase, delay);
    EXPECT_EQ(payload.get_response_status(), tlm::TLM_OK_RESPONSE);
    payload.release();
    return result;
  }
  void b_transport(tlm::tlm_generic_payload & payload, sc_core::sc_time & delay) override {
    out->b_transport(payload, delay);
  }
  bool get_direct_mem_ptr(tlm::tlm_generic_payload&, tlm::tlm_dmi&) override {
    return false;
  }
  unsigned transport_dbg(tlm::tlm_generic_payload&) override {
    return 0;
  }
  tlm::tlm_sync_enum nb_transport_bw(tlm::tlm_generic_payload&, tlm::tlm_phase&, sc_core::sc_time&) override {
    ADD_FAILURE() << "nothing comes backward";
    return tlm::TLM_ACCEPTED;
  }
  void invalidate_direct_mem_ptr(sc_dt::uint64, sc_dt::uint64) override {}
  tlm::tlm_target_socket<> in;
  tlm::tlm_initiator_socket<> out;
  std::uint64_t payloads = 0;
};

// The fabric of fabric.h as modules.
SC_MODULE(ModuleFabric) {
  struct Hosted {
    Hosted(const std::string& name, Simulation& simulation, const FabricOptions& o, Bdf bdf)
        : function(simulation, name, o.endpoint, o.memory_bytes, bdf), port(name, *function.endpoint) {
      function.endpoint->connect(port.tx);
    }
    Function function;
    TlmPort port;
  };
  ModuleFabric(const sc_core::sc_module_name& name, const FabricOptions& o, bool monitored)
      : sc_module(name),
        simulation(with_mode(simulation_, o.timed)),
        tables(Hpa{std::uint64_t{1} << 46}, 1U << 16),
        iommu(tables),
        host("host", simulation.events),
        complex("rc", simulation, o.root_complex, iommu, memory, interrupts),
        root_link("uplink", simulation, o.root_link),
        other_link("other", simulation, o.device_link),
        fabric_switch("switch", simulation, {o.switch_functions, o.switch_settings.latency}) {
    const unsigned n = o.switch_functions;
    const AcsControl acs = AcsControl::from_register(o.acs);
    complex.add_port("port0", 0, {1, 2 + n}, acs);
    complex.add_port("port1", 1, {20, 20}, acs);
    bind(complex.ports[0]->port, root_link.upper);
    bind(complex.ports[1]->port, other_link.upper);
    if (monitored) {
      monitor_down = std::make_unique<Monitor>("monitor_down");
      monitor_up = std::make_unique<Monitor>("monitor_up");
      root_link.lower.tx.socket.bind(monitor_down->in);
      monitor_down->out.bind(fabric_switch.ports[0]->rx.socket);
      fabric_switch.ports[0]->tx.socket.bind(monitor_up->in);
      monitor_up->out.bind(root_link.lower.rx.socket);
    } else {
      bind(root_link.lower, *fabric_switch.ports[0]);
    }
    fabric_switch.core.set_bdf(Bdf::of(1, 0, 0));
    fabric_switch.core.set_bus_range(0, {2, 2 + n});
    for (unsigned i = 0; i <= n; ++i) {
      const bool below_switch = i < n;
      const Bdf bdf = below_switch ? Bdf::of(3 + i, 0, 0) : Bdf::of(20, 0, 0);
      functions.push_back(std::make_unique<Hosted>("dev" + std::to_string(i), simulation, o, bdf));
      Hosted& f = *functions.back();
      f.function.enable(Fabric::registers_base + i * testing::register_bar_bytes,
                        Fabric::memory_base + i * o.memory_bytes);
      for (const auto& [start, size] :
           {std::pair{f.function.bar0, testing::register_bar_bytes}, std::pair{f.function.bar2, o.memory_bytes}}) {
        complex.core.add_window(below_switch ? 0 : 1, start, size);
        if (below_switch) {
          fabric_switch.core.add_window(i + 1, start, size);
        }
      }
      if (below_switch) {
        device_links.push_back(
            std::make_unique<LinkModule>(("link" + std::to_string(i)).c_str(), simulation, o.device_link));
        fabric_switch.core.set_bus_range(i + 1, {3 + i, 3 + i});
        fabric_switch.core.set_acs(i + 1, acs);
        bind(*fabric_switch.ports[i + 1], device_links.back()->upper);
        bind(device_links.back()->lower, f.port);
      } else {
        bind(other_link.lower, f.port);
      }
      const DomainId domain = *iommu.create_domain(o.domain);
      iommu.attach(bdf, domain);
    }
  }
  Simulation& with_mode(Simulation & s, bool timed) {
    use_tlm_carriers(s.tlps);
    s.timed = timed;
    return s;
  }
  Simulation simulation_;
  Simulation& simulation;
  PageTablePool tables;
  Iommu iommu;
  HostStub memory;
  Interrupts interrupts;
  EventHost host;
  RootComplexModule complex;
  LinkModule root_link;
  LinkModule other_link;
  SwitchModule fabric_switch;
  std::vector<std::unique_ptr<LinkModule>> device_links;
  std::vector<std::unique_ptr<Hosted>> functions;
  std::unique_ptr<Monitor> monitor_down;
  std::unique_ptr<Monitor> monitor_up;
};

// Names of components differ between the two ways of building; links are compared by what they are.
struct NamedSeen {
  std::string link;
  Seen seen;
};
std::string short_name(std::string name) {
  const std::size_t dot = name.find('.');
  if (dot != std::string::npos && name.substr(0, dot) == "top") {
    name = name.substr(dot + 1);
  }
  return name;
}

// The same traffic on either: host reads and writes, peers direct and redirected, the CPU, faults, MSI-X.
template <class Start, class Cpu, class Run>
void traffic(std::vector<DmaTransfer>& transfers, std::vector<std::vector<std::byte>>& buffers, DmaLog& log,
             const Start& start, const Cpu& cpu, const Run& run) {
  std::mt19937_64 random(77);
  buffers.resize(24);
  transfers.resize(24);
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    buffers[i].resize(1 + random() % 20'000);
    for (std::byte& b : buffers[i]) {
      b = static_cast<std::byte>(random());
    }
    const std::uint64_t peer = random() % 4;
    const bool to_host = random() % 2 == 0;
    const std::uint64_t address =
        to_host ? Fabric::dram + random() % 800'000 : Fabric::memory_base + peer * (1U << 20) + random() % 900'000;
    transfers[i] =
        Fabric::transfer(random() % 2 == 0 ? Kind::read : Kind::write, address, buffers[i], random() % 2 == 0);
    if (i == 20) {
      transfers[i].address = 0x6666'0000;  // nobody's
    }
    transfers[i].attributes.relaxed_ordering = random() % 2 == 0;
    transfers[i].listener = &log;
    start(static_cast<unsigned>(random() % 4), transfers[i]);
    if (i % 8 == 7) {
      cpu(Fabric::registers_base + (random() % 4) * testing::register_bar_bytes + 8);
      run();
    }
  }
  run();
}

void compare(bool timed, bool monitored) {
  FabricOptions options;
  options.timed = timed;
  options.root_link = {4, 8, {40'000}};  // slower than the devices: queues form
  std::array<std::vector<NamedSeen>, 2> seen;
  std::array<std::vector<std::size_t>, 2> order;
  std::array<std::vector<std::byte>, 2> host_bytes;
  std::array<std::uint64_t, 2> dispatched{};
  for (const int modules : {0, 1}) {
    Sniffer sniffer;
    DmaLog log;
    std::vector<DmaTransfer> transfers;
    std::vector<std::vector<std::byte>> buffers;
    HostRequest request;
    std::array<std::byte, 8> word{};
    const auto cpu = [&](RootComplex& complex) {
      return [&](std::uint64_t address) {
        request = {};
        request.address = address;
        request.buffer = word;
        complex.start(request);
      };
    };
    const auto finish = [&](Simulation& simulation, HostStub& memory) {
      for (const Seen& one : sniffer.seen) {
        seen[static_cast<std::size_t>(modules)].push_back({short_name(simulation.names[one.link]), one});
      }
      for (const DmaTransfer* transfer : log.done) {
        order[static_cast<std::size_t>(modules)].push_back(static_cast<std::size_t>(transfer - transfers.data()));
      }
      host_bytes[static_cast<std::size_t>(modules)] = memory.regions[0]->bytes;
      dispatched[static_cast<std::size_t>(modules)] = simulation.events.dispatched();
      EXPECT_EQ(simulation.tlps.outstanding(), 0U);
      EXPECT_TRUE(request.done);
    };
    if (modules == 0) {
      Fabric fabric(options);
      fabric.memory.add(Fabric::dram, 1U << 20);
      fabric.simulation.observer = &sniffer;
      traffic(
          transfers, buffers, log, [&](unsigned i, DmaTransfer& t) { fabric[i].endpoint->start(t); },
          cpu(fabric.complex),
          [&] { fabric.simulation.events.run_until(fabric.simulation.now() + Picoseconds{100'000'000}); });
      finish(fabric.simulation, fabric.memory);
    } else {
      ModuleFabric fabric("top", options, monitored);
      fabric.memory.add(Fabric::dram, 1U << 20);
      fabric.simulation.observer = &sniffer;
      sc_core::sc_start(sc_core::SC_ZERO_TIME);
      traffic(
          transfers, buffers, log,
          [&](unsigned i, DmaTransfer& t) { fabric.functions[i]->function.endpoint->start(t); },
          cpu(fabric.complex.core),
          [&] {
            fabric.host.kick();
            sc_core::sc_start(sc_core::sc_time(100, sc_core::SC_US), sc_core::SC_RUN_TO_TIME);
            fabric.host.synchronise();
          });
      finish(fabric.simulation, fabric.memory);
      EXPECT_TRUE(fabric.simulation.events.empty());
      if (monitored) {
        // Functional mode passes bursts as one payload; timed mode single TLPs.
        std::array<std::uint64_t, 2> carried{};
        for (const Seen& one : sniffer.seen) {
          carried[0] += one.link == fabric.root_link.core.down.id() ? 1 : 0;
          carried[1] += one.link == fabric.root_link.core.up.id() ? 1 : 0;
        }
        EXPECT_EQ(fabric.monitor_down->payloads, carried[0]);
        EXPECT_EQ(fabric.monitor_up->payloads, carried[1]);
        EXPECT_GT(carried[0], 10U);
      }
    }
  }
  ASSERT_EQ(seen[0].size(), seen[1].size());
  for (std::size_t i = 0; i < seen[0].size(); ++i) {
    ASSERT_EQ(seen[0][i].link, seen[1][i].link) << i;
    seen[1][i].seen.link = seen[0][i].seen.link;
    ASSERT_EQ(seen[0][i].seen, seen[1][i].seen) << i << " on " << seen[0][i].link;
  }
  EXPECT_EQ(order[0], order[1]);
  EXPECT_EQ(order[0].size(), 24U);
  EXPECT_EQ(host_bytes[0], host_bytes[1]);
  EXPECT_EQ(dispatched[0], dispatched[1]);
  EXPECT_GT(seen[0].size(), timed ? 2500U : 100U);
}

TEST(Modules, SameSequenceAsWiredDirectlyFunctional) {
  compare(false, false);
}
TEST(Modules, SameSequenceAsWiredDirectlyTimed) {
  compare(true, false);
}
TEST(Modules, SameSequenceUnderAMonitorFunctional) {
  compare(false, true);
}
TEST(Modules, SameSequenceUnderAMonitorTimed) {
  compare(true, true);
}

// ---- The base protocol --------------------------------------------------------------------------------------

// A sender of TLPs and a receiver that keeps the payloads it has seen.
SC_MODULE(Probe), tlm::tlm_bw_transport_if<>, tlm::tlm_fw_transport_if<> {
  explicit Probe(const sc_core::sc_module_name& name) : sc_module(name), out("out"), in("in") {
    out.bind(*this);
    in.bind(*this);
  }
  tlm::tlm_sync_enum nb_transport_bw(tlm::tlm_generic_payload&, tlm::tlm_phase&, sc_core::sc_time&) override {
    ++backward;
    return tlm::TLM_ACCEPTED;
  }
  void invalidate_direct_mem_ptr(sc_dt::uint64, sc_dt::uint64) override {}
  tlm::tlm_sync_enum nb_transport_fw(tlm::tlm_generic_payload & payload, tlm::tlm_phase & phase,
                                     sc_core::sc_time & delay) override {
    phases.push_back(phase);
    commands.push_back(payload.get_command());
    addresses.push_back(payload.get_address());
    lengths.push_back(payload.get_data_length());
    statuses.push_back(payload.get_response_status());
    reference_counts.push_back(payload.get_ref_count());
    delays.push_back(delay);
    TlpExtension* extension = nullptr;
    payload.get_extension(extension);
    if (keep) {
      payload.acquire();
      kept = &payload;
    }
    payload.set_response_status(tlm::TLM_OK_RESPONSE);
    const TlpPtr consumed(extension->tlp);
    return tlm::TLM_COMPLETED;
  }
  void b_transport(tlm::tlm_generic_payload&, sc_core::sc_time&) override {}
  bool get_direct_mem_ptr(tlm::tlm_generic_payload&, tlm::tlm_dmi&) override {
    return false;
  }
  unsigned transport_dbg(tlm::tlm_generic_payload&) override {
    return 0;
  }
  tlm::tlm_initiator_socket<> out;
  tlm::tlm_target_socket<> in;
  unsigned backward = 0;
  bool keep = false;
  tlm::tlm_generic_payload* kept = nullptr;
  std::vector<tlm::tlm_phase> phases;
  std::vector<tlm::tlm_command> commands;
  std::vector<std::uint64_t> addresses;
  std::vector<unsigned> lengths;
  std::vector<tlm::tlm_response_status> statuses;
  std::vector<int> reference_counts;
  std::vector<sc_core::sc_time> delays;
};

SC_MODULE(Pair) {
  explicit Pair(const sc_core::sc_module_name& name)
      : sc_module(name), core(simulation), probe("probe"), port("port", core) {
    use_tlm_carriers(simulation.tlps);
    simulation.timed = true;
    probe.out.bind(port.rx.socket);
    port.tx.socket.bind(probe.in);
    sc_core::sc_start(sc_core::SC_ZERO_TIME);
  }
  Simulation simulation;
  Collector core;
  Probe probe;
  TlmPort port;
};

TEST(TlmPort, WritesAreWriteCommandsAndTheRestIsIgnored) {
  Pair pair("pair");
  for (const TlpType type : {TlpType::MWr, TlpType::MRd, TlpType::CplD, TlpType::Cpl, TlpType::CfgWr0, TlpType::Msg}) {
    TlpPtr tlp = pair.simulation.tlps.make();
    tlp->type = type;
    tlp->address = 0x1234'5678'9abc;
    if (carries_payload(type)) {
      tlp->store(std::vector<std::byte>(8));
    }
    pair.port.tx.receive(std::move(tlp), Picoseconds{123});
  }
  EXPECT_EQ(pair.probe.commands[0], tlm::TLM_WRITE_COMMAND);
  EXPECT_EQ(pair.probe.lengths[0], 8U);
  for (std::size_t i = 0; i < pair.probe.commands.size(); ++i) {
    EXPECT_EQ(pair.probe.phases[i], tlm::BEGIN_REQ);
    EXPECT_EQ(pair.probe.addresses[i], 0x1234'5678'9abcU);
    EXPECT_EQ(pair.probe.delays[i].value(), 123U);
    EXPECT_EQ(pair.probe.statuses[i], tlm::TLM_INCOMPLETE_RESPONSE);
    EXPECT_GE(pair.probe.reference_counts[i], 1) << "a payload with a manager comes with a reference";
    if (i > 0) {
      EXPECT_EQ(pair.probe.commands[i], tlm::TLM_IGNORE_COMMAND);
    }
  }
  EXPECT_EQ(pair.simulation.tlps.outstanding(), 0U);
}

TEST(TlmPort, APayloadThatSomebodyKeepsIsNotUsedAgain) {
  Pair pair("pair");
  const auto send = [&] {
    TlpPtr tlp = pair.simulation.tlps.make();
    tlp->type = TlpType::MWr;
    tlp->store(std::vector<std::byte>(8));
    pair.port.tx.receive(std::move(tlp), {});
  };
  pair.probe.keep = true;
  send();
  tlm::tlm_generic_payload* kept = pair.probe.kept;
  TlpExtension* extension = nullptr;
  kept->get_extension(extension);
  EXPECT_EQ(extension->tlp, nullptr) << "the TLP is gone";
  EXPECT_EQ(kept->get_ref_count(), 1);
  EXPECT_EQ(kept->get_response_status(), tlm::TLM_OK_RESPONSE);
  send();
  EXPECT_NE(pair.probe.kept, kept);
  kept->release();
  pair.probe.kept->release();
  pair.probe.keep = false;
  for (int i = 0; i < 100; ++i) {
    send();
  }
}

TEST(TlmPort, WhatCarriesNoTlpIsRefused) {
  Pair pair("pair");
  tlm::tlm_generic_payload plain;
  std::array<unsigned char, 4> data{};
  plain.set_command(tlm::TLM_READ_COMMAND);
  plain.set_data_ptr(data.data());
  plain.set_data_length(4);
  sc_core::sc_time delay;
  pair.probe.out->b_transport(plain, delay);
  EXPECT_EQ(plain.get_response_status(), tlm::TLM_COMMAND_ERROR_RESPONSE);
  TlpExtension empty;
  plain.set_extension(&empty);
  plain.set_response_status(tlm::TLM_INCOMPLETE_RESPONSE);
  tlm::tlm_phase phase = tlm::BEGIN_REQ;
  EXPECT_EQ(pair.probe.out->nb_transport_fw(plain, phase, delay), tlm::TLM_COMPLETED);
  EXPECT_EQ(plain.get_response_status(), tlm::TLM_COMMAND_ERROR_RESPONSE);
  plain.clear_extension(&empty);
  tlm::tlm_dmi dmi;
  EXPECT_FALSE(pair.probe.out->get_direct_mem_ptr(plain, dmi));
  EXPECT_EQ(pair.probe.out->transport_dbg(plain), 0U);
  EXPECT_TRUE(pair.core.tlps.empty());
}

// A foreign initiator's TLP, by either transport call; the answer says when it has left the sender's hands.
TEST(TlmPort, ForeignInitiatorsMaySend) {
  Pair pair("pair");
  for (const bool blocking : {true, false}) {
    TlpPtr tlp = pair.simulation.tlps.make();
    tlp->type = TlpType::MRd;
    TlpExtension extension;
    extension.tlp = tlp.release();
    tlm::tlm_generic_payload payload;
    payload.set_extension(&extension);
    sc_core::sc_time delay = sc_core::sc_time::from_value(55);
    if (blocking) {
      pair.probe.out->b_transport(payload, delay);
    } else {
      tlm::tlm_phase phase = tlm::BEGIN_REQ;
      EXPECT_EQ(pair.probe.out->nb_transport_fw(payload, phase, delay), tlm::TLM_COMPLETED);
      phase = tlm::END_RESP;  // nothing we asked for
      EXPECT_EQ(pair.probe.out->nb_transport_fw(payload, phase, delay), tlm::TLM_ACCEPTED);
    }
    EXPECT_EQ(payload.get_response_status(), tlm::TLM_OK_RESPONSE);
    EXPECT_EQ(delay.value(), 55U);
    payload.clear_extension(&extension);
  }
  EXPECT_EQ(pair.core.tlps.size(), 2U);
  EXPECT_EQ(pair.core.times[0], Picoseconds{55});
  EXPECT_EQ(pair.probe.backward, 0U);
  pair.core.tlps.clear();
}

// ---- The event queue in the kernel ----------------------------------------------------------------------------

struct Stamp final : EventHandler {
  void on_event(std::uint64_t argument) override {
    seen.emplace_back(argument, sc_core::sc_time_stamp().value());
    if (then) {
      then(argument);
    }
  }
  std::vector<std::pair<std::uint64_t, std::uint64_t>> seen;
  std::function<void(std::uint64_t)> then;
};

TEST(EventHost, HandlesEventsAtTheKernelsTime) {
  EventQueue queue;
  EventHost host("host", queue);
  Stamp stamp;
  queue.schedule(Picoseconds{500}, stamp, 1);
  queue.schedule(Picoseconds{200}, stamp, 2);
  stamp.then = [&](std::uint64_t argument) {
    if (argument == 2) {
      queue.schedule(Picoseconds{300}, stamp, 3);  // earlier than what the method sleeps for
      queue.schedule(Picoseconds{200}, stamp, 4);
    }
  };
  sc_core::sc_start(sc_core::sc_time(1, sc_core::SC_NS));
  EXPECT_EQ(stamp.seen, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{2, 200}, {4, 200}, {3, 300}, {1, 500}}));
  // From outside, after the kernel's time has moved on: not in the past.
  host.synchronise();
  EXPECT_EQ(queue.now(), Picoseconds{1000});
  queue.schedule(Picoseconds{0}, stamp, 5);
  queue.schedule(Picoseconds{1500}, stamp, 6);
  host.kick();
  sc_core::sc_start(sc_core::sc_time(1, sc_core::SC_NS));
  ASSERT_EQ(stamp.seen.size(), 6U);
  EXPECT_EQ(stamp.seen[4], (std::pair<std::uint64_t, std::uint64_t>{5, 1000}));
  EXPECT_EQ(stamp.seen[5], (std::pair<std::uint64_t, std::uint64_t>{6, 1500}));
}

TEST(EventHost, ABudgetPausesTheKernel) {
  EventQueue queue;
  EventHost host("host", queue);
  Stamp stamp;
  for (std::uint64_t i = 0; i < 10; ++i) {
    queue.schedule(Picoseconds{i / 5}, stamp, i);
  }
  host.set_budget(3);
  sc_core::sc_start(sc_core::sc_time(1, sc_core::SC_NS));
  EXPECT_EQ(stamp.seen.size(), 3U);
  EXPECT_EQ(sc_core::sc_time_stamp().value(), 0U) << "time stands still while something is due";
  host.set_budget(4);
  sc_core::sc_start(sc_core::sc_time(1, sc_core::SC_NS));
  EXPECT_EQ(stamp.seen.size(), 7U);
  host.set_budget(0);
  sc_core::sc_start(sc_core::sc_time(1, sc_core::SC_NS));
  EXPECT_EQ(stamp.seen.size(), 10U);
}

}  // namespace
}  // namespace orrery::pcie::tlm_port_test
