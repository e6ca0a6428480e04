#include "pcie/modules.h"

#include <fmt/format.h>
#include <algorithm>

// SystemC's shared library refers to this symbol even where the program has a main() of its own. A
// program that is started through SystemC's main() defines it itself.
extern "C" __attribute__((weak)) int sc_main(int /*argc*/, char* /*argv*/[]) {
  return 0;
}

namespace orrery::pcie {

EventHost::EventHost(const sc_core::sc_module_name& name, EventQueue& events) : sc_module(name), events_(events) {
  SC_METHOD(run);
}

void EventHost::kick() {
  // A needless wake-up would cancel the kernel's timer, whose entry stays queued until its time.
  if (events_.next_time() < armed_) {
    wake_.notify();
  }
}

void EventHost::synchronise() {
  events_.advance_to({sc_core::sc_time_stamp().value()});
}

void EventHost::pause(std::uint64_t now) {
  pausing_ = events_.now().count > now;
  armed_ = events_.now();
  if (pausing_) {
    next_trigger(sc_core::sc_time::from_value(armed_.count - now));
  } else {
    sc_core::sc_pause();
    next_trigger(sc_core::SC_ZERO_TIME);
  }
}

void EventHost::run() {
  const std::uint64_t now = sc_core::sc_time_stamp().value();
  if (pausing_) {
    pause(now);
    return;
  }
  const std::uint64_t until = std::max(now, ahead_.count);
  while (events_.next_time().count <= until) {
    if (budget_ != 0 && handled_ >= budget_) {
      pause(now);
      return;
    }
    events_.run_one();
    ++handled_;
  }
  events_.advance_to({now});
  armed_ = events_.next_time();
  if (events_.empty()) {
    next_trigger(wake_);
  } else {
    next_trigger(sc_core::sc_time::from_value(events_.next_time().count - now), wake_);
  }
}

LinkModule::LinkModule(const sc_core::sc_module_name& name, Simulation& simulation, const LinkSettings& settings)
    : sc_module(name), core(simulation, this->name(), settings), upper("upper", core.down), lower("lower", core.up) {
  core.down.connect(lower.tx);
  core.up.connect(upper.tx);
}

SwitchModule::SwitchModule(const sc_core::sc_module_name& name, Simulation& simulation, const SwitchSettings& settings)
    : sc_module(name), core(simulation, this->name(), settings) {
  for (unsigned i = 0; i <= settings.downstream_ports; ++i) {
    ports.push_back(std::make_unique<TlmPort>(fmt::format("port{}", i), core.ingress(i)));
    core.connect(i, ports.back()->tx);
  }
}

RootComplexModule::RootComplexModule(const sc_core::sc_module_name& name, Simulation& simulation,
                                     const RootComplexSettings& settings, Iommu& iommu, HostMemory& memory,
                                     InterruptController& interrupts)
    : sc_module(name), core(simulation, this->name(), settings, iommu, memory, interrupts) {}

unsigned RootComplexModule::add_port(const std::string& port_name, unsigned socket, BusRange buses,
                                     const AcsControl& acs) {
  const unsigned index = core.add_port(port_name, socket, buses, acs);
  ports.push_back(
      std::make_unique<RootPortModule>(fmt::format("{}_{}", basename(), port_name).c_str(), core.ingress(index)));
  core.connect(index, ports.back()->port.tx);
  return index;
}

EndpointModule::EndpointModule(const sc_core::sc_module_name& name, Simulation& simulation,
                               const EndpointSettings& settings, ConfigSpace& config, const BarDescriptions& bars,
                               DeviceModel& model)
    : sc_module(name), core(simulation, this->name(), settings, config, bars, model), port("port", core) {
  core.connect(port.tx);
}

}  // namespace orrery::pcie
