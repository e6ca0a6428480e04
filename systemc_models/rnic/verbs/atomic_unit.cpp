#include "systemc_models/rnic/verbs/atomic_unit.h"

#include <cstring>

namespace orrery::rnic {

void AtomicUnit::start(const AtomicOperation& operation, AtomicClient& client) {
  ++client.atomics_in_flight;
  queue_.push_back({operation, &client});
  if (queue_.size() == 1) {
    next();
  }
}

void AtomicUnit::next() {
  if (!queue_.empty()) {
    const AtomicOperation& operation = queue_.front().operation;
    core_.dma.read(operation.function, {&operation.target, 1}, bytes_.data(), *this, read_cookie);
  }
}

void AtomicUnit::on_dma(std::uint64_t cookie, bool ok) {
  const AtomicOperation& operation = queue_.front().operation;
  if (!ok || cookie == write_cookie) {
    finish(ok);
    return;
  }
  std::memcpy(&original_, bytes_.data(), 8);
  std::uint64_t result = original_;
  if (operation.kind == AtomicOperation::Kind::fetch_add) {
    result += operation.swap_add;
  } else if (original_ == operation.compare) {
    result = operation.swap_add;
  } else {
    finish(true);
    return;
  }
  std::memcpy(bytes_.data(), &result, 8);
  core_.dma.write(operation.function, {&operation.target, 1}, bytes_.data(), true, *this, write_cookie);
}

void AtomicUnit::finish(bool ok) {
  AtomicClient& client = *queue_.front().client;
  queue_.pop_front();
  next();
  --client.atomics_in_flight;
  client.on_atomic(original_, ok);
}

void AtomicUnit::forget(std::uint32_t function) {
  const bool executing = !queue_.empty() && queue_.front().operation.function == function;
  std::erase_if(queue_, [&](const Entry& entry) {
    if (entry.operation.function != function) {
      return false;
    }
    --entry.client->atomics_in_flight;
    return true;
  });
  if (executing) {
    next();
  }
}

}  // namespace orrery::rnic
