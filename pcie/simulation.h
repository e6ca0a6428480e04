// What every component of one platform shares: the clock, the TLP pool, the time mode and the trace.
#pragma once

#include <string>
#include <vector>

#include "common/event_queue.h"
#include "pcie/tlp.h"

namespace orrery::pcie {

// Told of every TLP that a link carries, at the moment its transmission is decided.
// `start`: serialisation begins; `end`: its last bit has arrived at the far end. Equal in functional mode.
class TlpObserver {
 public:
  virtual void on_link(ComponentId link_direction, const Tlp& tlp, Picoseconds start, Picoseconds end) = 0;

 protected:
  ~TlpObserver() = default;
};

// Names of the components of a run, by ComponentId. Ids are given in order of creation, so equal
// configurations have equal ids.
class ComponentNames {
 public:
  ComponentNames() : names_{"unknown"} {}
  ComponentId add(std::string name) {
    names_.push_back(std::move(name));
    return static_cast<ComponentId>(names_.size() - 1);
  }
  [[nodiscard]] const std::string& operator[](ComponentId id) const { return names_[id < names_.size() ? id : 0]; }
  [[nodiscard]] const std::vector<std::string>& all() const { return names_; }

 private:
  std::vector<std::string> names_;
};

// One per platform; outlives its components. One thread.
struct Simulation {
  EventQueue events;
  TlpPool tlps;
  ComponentNames names;
  // false: functional mode, every link passes TLPs on at once, nothing is charged. true: timed mode.
  bool timed = false;
  TlpObserver* observer = nullptr;  // null: nobody is told

  [[nodiscard]] Picoseconds now() const { return events.now(); }
};

}  // namespace orrery::pcie
