#include "systemc_models/rnic/management_faults.h"

#include <algorithm>

namespace orrery::rnic {

bool ManagementFaults::add(const RegisterFault& fault) {
  if (registers_.size() >= most || fault.count == 0) {
    return false;
  }
  registers_.push_back(fault);
  return true;
}

bool ManagementFaults::add(const DmaFault& fault) {
  if (dma_.size() >= most || fault.count == 0) {
    return false;
  }
  dma_.push_back(fault);
  return true;
}

void ManagementFaults::clear() {
  registers_.clear();
  dma_.clear();
}

std::uint32_t ManagementFaults::apply(std::uint32_t offset, bool write, std::uint32_t value) {
  for (RegisterFault& fault : registers_) {
    if (fault.offset == offset && fault.write == write) {
      value = (value & ~fault.mask) | (fault.value & fault.mask);
      fault.count -= fault.count != fault_always ? 1 : 0;
      ++struck_;
    }
  }
  std::erase_if(registers_, [](const RegisterFault& fault) { return fault.count == 0; });
  return value;
}

bool ManagementFaults::fails(std::uint32_t channel) {
  const auto found = std::find_if(dma_.begin(), dma_.end(), [&](const DmaFault& f) { return f.channel == channel; });
  if (found == dma_.end()) {
    return false;
  }
  ++struck_;
  if (found->count != fault_always && --found->count == 0) {
    dma_.erase(found);
  }
  return true;
}

}  // namespace orrery::rnic
