// How long a server that has nothing to do keeps looking for the next message before it sleeps.
//
// Waking a sleeping thread costs a message more than all the rest of its way, and drivers that probe a device read one
// register after the other. So the wait is learnt, as Linux's KVM does for halted vCPUs (Documentation/virt/kvm/
// halt-polling.rst): it doubles while messages come soon after one another, and falls to nothing after a long silence,
// so that an idle server sleeps. Plain arithmetic; one thread.
#pragma once

#include <algorithm>
#include <chrono>

namespace orrery::cli {

class AdaptiveWait {
 public:
  using Nanoseconds = std::chrono::nanoseconds;

  // The wait is 0 or from `first` to `most`.
  constexpr AdaptiveWait(Nanoseconds first, Nanoseconds most) : first_(first), most_(most) {}

  // How long to look before sleeping.
  [[nodiscard]] constexpr Nanoseconds wait() const { return wait_; }

  // Something came after `silence` without anything, whether slept through or not.
  constexpr void ended(Nanoseconds silence) {
    if (silence <= wait_) {
      return;  // it was long enough
    }
    wait_ = silence > most_ ? Nanoseconds{0} : std::min(most_, std::max(first_, wait_ * 2));
  }

 private:
  Nanoseconds first_;
  Nanoseconds most_;
  Nanoseconds wait_{0};
};

}  // namespace orrery::cli
