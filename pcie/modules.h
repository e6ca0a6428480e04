// The PCIe components as SystemC modules: each hosts its core and gives it TLM-2.0 sockets (tlm_port.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <systemc>

#include "pcie/endpoint.h"
#include "pcie/link.h"
#include "pcie/root_complex.h"
#include "pcie/switch.h"
#include "pcie/tlm_port.h"

namespace orrery::pcie {

// One PCIe port: `rx` receives TLPs for a core, `tx` sends a core's TLPs.
struct TlmPort {
  TlmPort(const std::string& name, TlpSink& core) : rx((name + "_rx").c_str(), core), tx((name + "_tx").c_str()) {}
  TlpTarget rx;
  TlpInitiator tx;
};

// Binds two ports to each other, both directions.
inline void bind(TlmPort& a, TlmPort& b) {
  a.tx.socket.bind(b.rx.socket);
  b.tx.socket.bind(a.rx.socket);
}

// Hosts an event queue in the SystemC kernel: one method that handles what is due and sleeps until the
// next event. Whoever schedules from outside the method calls kick() before the kernel runs on.
class EventHost final : public sc_core::sc_module {
 public:
#if SC_VERSION_MAJOR < 3
  SC_HAS_PROCESS(EventHost);
#endif
  EventHost(const sc_core::sc_module_name& name, EventQueue& events);
  // Makes the method runnable if an event is due earlier than it knows of. From a process or between two
  // sc_start(), not during an update phase.
  void kick();
  // Pauses the kernel once this many events have been handled from now on; 0: no limit.
  void set_budget(std::uint64_t events) {
    budget_ = events;
    handled_ = 0;
  }
  // With no other process in the kernel that takes time: until then events may be handled without going through the
  // kernel for each moment. The queue's clock is then ahead of the kernel's while events are handled, and only then.
  void run_ahead(Picoseconds until) {
    ahead_ = until;
  }
  // Moves the queue's clock to the kernel's: call it in a process before talking to a core.
  void synchronise();

 private:
  void run();
  void pause(std::uint64_t now);
  EventQueue& events_;
  sc_core::sc_event wake_;
  std::uint64_t budget_ = 0;
  std::uint64_t handled_ = 0;
  Picoseconds ahead_;
  bool pausing_ = false;  // the kernel catches up with the queue, and pauses there
  Picoseconds armed_;     // when the method will run by itself; 0 until it has run once
};

class LinkModule final : public sc_core::sc_module {
 public:
  LinkModule(const sc_core::sc_module_name& name, Simulation& simulation, const LinkSettings& settings);
  Link core;
  TlmPort upper;  // faces the root complex
  TlmPort lower;  // faces the device
};

class SwitchModule final : public sc_core::sc_module {
 public:
  SwitchModule(const sc_core::sc_module_name& name, Simulation& simulation, const SwitchSettings& settings);
  Switch core;
  // Index as in Switch: 0 is the upstream port. All are connected to the core, and all must be bound.
  std::vector<std::unique_ptr<TlmPort>> ports;
};

// The sockets of one root port: a module of its own, as root ports are added to a complex one by one.
class RootPortModule final : public sc_core::sc_module {
 public:
  RootPortModule(const sc_core::sc_module_name& name, TlpSink& core) : sc_module(name), port("port", core) {}
  TlmPort port;
};

class RootComplexModule final : public sc_core::sc_module {
 public:
  RootComplexModule(const sc_core::sc_module_name& name, Simulation& simulation, const RootComplexSettings& settings,
                    Iommu& iommu, HostMemory& memory, InterruptController& interrupts);
  // As RootComplex::add_port(), with sockets; before the simulation starts.
  unsigned add_port(const std::string& port_name, unsigned socket, BusRange buses, const AcsControl& acs);
  RootComplex core;
  std::vector<std::unique_ptr<RootPortModule>> ports;
};

class EndpointModule final : public sc_core::sc_module {
 public:
  EndpointModule(const sc_core::sc_module_name& name, Simulation& simulation, const EndpointSettings& settings,
                 ConfigSpace& config, const BarDescriptions& bars, DeviceModel& model);
  Endpoint core;
  TlmPort port;
};

}  // namespace orrery::pcie
