#include "systemc_models/rnic/verbs/send_engine.h"

namespace orrery::rnic {

bool SendEngine::take(EngineUser& user) {
  const Picoseconds occupied = core_.settings.timing.message;
  if (occupied == Picoseconds{}) {
    return true;
  }
  if (user.engine_waiting_) {
    return false;
  }
  if (first_ == nullptr && core_.now() >= free_at_) {
    free_at_ = core_.now() + occupied;
    return true;
  }
  user.engine_waiting_ = true;
  user.engine_next_ = nullptr;
  (last_ != nullptr ? last_->engine_next_ : first_) = &user;
  last_ = &user;
  wake();
  return false;
}

void SendEngine::leave(EngineUser& user) {
  if (!user.engine_waiting_) {
    return;
  }
  user.engine_waiting_ = false;
  EngineUser* before = nullptr;
  for (EngineUser* each = first_; each != &user; each = each->engine_next_) {
    before = each;
  }
  (before != nullptr ? before->engine_next_ : first_) = user.engine_next_;
  if (last_ == &user) {
    last_ = before;
  }
}

void SendEngine::wake() {
  if (!scheduled_) {
    scheduled_ = true;
    core_.events().schedule(free_at_, *this, 0);
  }
}

void SendEngine::on_event(std::uint64_t /*argument*/) {
  scheduled_ = false;
  // Whoever doesn't take it after all leaves it to the next.
  while (first_ != nullptr && core_.now() >= free_at_) {
    EngineUser& user = *first_;
    EngineUser* const others = user.engine_next_;
    EngineUser* const last = last_;
    // Out of the queue, which take() finds empty for this one user.
    user.engine_waiting_ = false;
    first_ = last_ = nullptr;
    user.on_send_engine();
    if (others != nullptr) {
      // Those who came meanwhile (the same user again, too) are behind those who waited.
      last->engine_next_ = first_;
      last_ = first_ != nullptr ? last_ : last;
      first_ = others;
    }
  }
  if (first_ != nullptr) {
    wake();
  }
}

}  // namespace orrery::rnic
