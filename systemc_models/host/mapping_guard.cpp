#include "systemc_models/host/mapping_guard.h"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>

#include <fmt/format.h>

#include "common/error.h"

namespace orrery::models {

namespace {

constexpr std::uint64_t guarded_bytes = 4096;  // a page

// What the signal handler may look at: fixed storage, lock-free fields.
struct Slot {
  std::atomic<std::uintptr_t> start{0};
  std::atomic<std::uint64_t> size{0};
  std::atomic<bool> truncated{false};
  std::atomic<bool> used{false};
};
std::array<Slot, 256> slots;
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

void on_bus_error(int signal, siginfo_t* info, void* /*context*/) {
  const int saved_errno = errno;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (Slot& slot : slots) {
    const std::uintptr_t start = slot.start.load(std::memory_order_acquire);
    if (start != 0 && address - start < slot.size.load(std::memory_order_acquire)) {
      auto* page = reinterpret_cast<void*>(address & ~(guarded_bytes - 1));
      if (mmap(page, guarded_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
          MAP_FAILED) {
        slot.truncated.store(true, std::memory_order_release);
        errno = saved_errno;
        return;
      }
    }
  }
  // Not ours: the default action, when the instruction faults again.
  std::signal(signal, SIG_DFL);
  errno = saved_errno;
}

void install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, nullptr);
  });
}

}  // namespace

GuardedMapping::GuardedMapping(int fd, std::uint64_t size) : size_(size) {
  install_handler();
  bool found = false;
  for (unsigned i = 0; i < slots.size() && !found; ++i) {
    bool expected = false;
    if (slots[i].used.compare_exchange_strong(expected, true)) {
      slot_ = i;
      found = true;
    }
  }
  if (!found) {
    throw Error(fmt::format("more than {} memory files mapped at once", slots.size()));
  }
  void* mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    slots[slot_].used = false;
    throw Error(fmt::format("can't map {} bytes of a memory file: {}", size, std::strerror(error)));
  }
  data_ = static_cast<std::byte*>(mapped);
  slots[slot_].truncated = false;
  slots[slot_].size.store(size, std::memory_order_release);
  slots[slot_].start.store(reinterpret_cast<std::uintptr_t>(mapped), std::memory_order_release);
}

GuardedMapping::~GuardedMapping() {
  slots[slot_].start.store(0, std::memory_order_release);
  munmap(data_, size_);
  slots[slot_].used = false;
}

bool GuardedMapping::take_truncated() {
  return slots[slot_].truncated.exchange(false);
}

}  // namespace orrery::models
