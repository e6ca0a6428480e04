#include "qemu_bridge/interrupts.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string_view>

namespace orrery::bridge {

bool is_eventfd(int fd) {
  std::array<char, 32> path{"/proc/self/fd/"};
  constexpr std::size_t prefix = std::string_view("/proc/self/fd/").size();
  const auto end = std::to_chars(path.data() + prefix, path.data() + path.size() - 1, fd);
  *end.ptr = '\0';
  constexpr std::string_view kind = "anon_inode:[eventfd]";
  std::array<char, 64> target{};
  const ssize_t length = ::readlink(path.data(), target.data(), target.size());
  return length == static_cast<ssize_t>(kind.size()) && std::string_view(target.data(), kind.size()) == kind;
}

Interrupts::Interrupts(unsigned msix_vectors) {
  indices_[wire::irq_msix].resize(msix_vectors);
  indices_[wire::irq_err].resize(1);
  indices_[wire::irq_req].resize(1);
}

std::uint32_t Interrupts::flags(std::uint32_t index) const {
  if (indices_[index].empty()) {
    return 0;
  }
  return index == wire::irq_msix ? wire::irq_info_eventfd | wire::irq_info_maskable : wire::irq_info_eventfd;
}

int Interrupts::set(const IrqRequest& request, std::span<FileDescriptor> descriptors) {
  const wire::IrqSet& set = request.set;
  const std::uint32_t data = set.flags & wire::irq_set_data_mask;
  const std::uint32_t action = set.flags & wire::irq_set_actions_mask;
  const std::uint32_t available = count(set.index);
  if (set.start > available || set.count > available - set.start) {
    return EINVAL;
  }
  if (action != wire::irq_set_action_trigger && (flags(set.index) & wire::irq_info_maskable) == 0) {
    return EINVAL;
  }
  if (data == wire::irq_set_data_eventfd) {
    return assign(set, descriptors);
  }
  if (!descriptors.empty()) {
    return EINVAL;
  }
  if (set.count == 0) {
    // Of an index without interrupts too: clients disable what they may never have enabled.
    disable(set.index);
    return 0;
  }
  for (std::uint32_t i = 0; i < set.count; ++i) {
    if (data == wire::irq_set_data_none || request.booleans[i] != std::byte{0}) {
      act(set.index, set.start + i, action);
    }
  }
  return 0;
}

int Interrupts::assign(const wire::IrqSet& set, std::span<FileDescriptor> descriptors) {
  if (!descriptors.empty()) {
    if (descriptors.size() != set.count ||
        !std::all_of(descriptors.begin(), descriptors.end(),
                     [](const FileDescriptor& descriptor) { return is_eventfd(descriptor.get()); })) {
      return EINVAL;
    }
  }
  for (std::uint32_t i = 0; i < set.count; ++i) {
    FileDescriptor given;
    if (!descriptors.empty()) {
      given = std::move(descriptors[i]);
      // A counter at its limit must not stop the server.
      ::fcntl(given.get(), F_SETFL, ::fcntl(given.get(), F_GETFL) | O_NONBLOCK);
    }
    Vector& vector = indices_[set.index][set.start + i];
    if ((set.flags & wire::irq_set_action_mask) != 0) {
      vector.on_mask = std::move(given);
    } else if ((set.flags & wire::irq_set_action_unmask) != 0) {
      vector.on_unmask = std::move(given);
    } else {
      assigned_[set.index] -= vector.trigger ? 1U : 0U;
      vector.trigger = std::move(given);
      assigned_[set.index] += vector.trigger ? 1U : 0U;
      deliver_if_due(vector);
    }
  }
  if (!enabled(set.index)) {
    for (Vector& vector : indices_[set.index]) {
      vector.pending = false;
    }
  }
  return 0;
}

void Interrupts::act(std::uint32_t index, std::uint32_t vector, std::uint32_t action) {
  if (action == wire::irq_set_action_trigger) {
    fire(index, vector);
  } else {
    set_masked(indices_[index][vector], action == wire::irq_set_action_mask);
  }
}

void Interrupts::fire(std::uint32_t index, std::uint32_t number) {
  if (number >= count(index) || !enabled(index)) {
    ++dropped_;
    return;
  }
  Vector& vector = indices_[index][number];
  vector.pending = true;
  deliver_if_due(vector);
}

void Interrupts::set_masked(Vector& vector, bool masked) {
  if (vector.masked == masked) {
    return;
  }
  vector.masked = masked;
  signal(masked ? vector.on_mask : vector.on_unmask);
  deliver_if_due(vector);
}

void Interrupts::deliver_if_due(Vector& vector) {
  if (vector.pending && !vector.masked && vector.trigger) {
    vector.pending = false;
    if (signal(vector.trigger)) {
      ++signalled_;
    } else {
      ++dropped_;
    }
  }
}

bool Interrupts::notify(std::uint32_t index) {
  if (!indices_[index][0].trigger) {
    return false;
  }
  fire(index, 0);
  return true;
}

void Interrupts::disable(std::uint32_t index) {
  for (Vector& vector : indices_[index]) {
    vector = Vector();
  }
  assigned_[index] = 0;
}

void Interrupts::reset() {
  for (std::vector<Vector>& vectors : indices_) {
    for (Vector& vector : vectors) {
      vector.masked = false;
      vector.pending = false;
    }
  }
}

void Interrupts::clear() {
  for (std::uint32_t index = 0; index < wire::irq_index_count; ++index) {
    disable(index);
  }
}

bool Interrupts::signal(const FileDescriptor& eventfd) {
  if (!eventfd) {
    return false;
  }
  // The client shares the open file and could make it blocking again, so ask before writing. A counter
  // at its limit means that the client has an interrupt to collect anyway.
  pollfd ready{eventfd.get(), POLLOUT, 0};
  if (::poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0) {
    return false;
  }
  const std::uint64_t one = 1;
  return ::write(eventfd.get(), &one, sizeof(one)) == sizeof(one);
}

}  // namespace orrery::bridge
