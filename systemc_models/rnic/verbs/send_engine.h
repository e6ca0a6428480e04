// The RNIC's engine that executes WQEs: one at a time for all send queues, which is what bounds the message rate.
#pragma once

#include "common/event_queue.h"
#include "systemc_models/rnic/verbs/core.h"

namespace orrery::rnic {

// A send queue that waits for the engine.
class EngineUser {
 public:
  EngineUser() = default;
  EngineUser(const EngineUser&) = delete;
  EngineUser& operator=(const EngineUser&) = delete;
  // The engine is free: take() succeeds now.
  virtual void on_send_engine() = 0;

 protected:
  virtual ~EngineUser() = default;

 private:
  friend class SendEngine;
  EngineUser* engine_next_ = nullptr;
  bool engine_waiting_ = false;
};

class SendEngine final : private EventHandler {
 public:
  explicit SendEngine(Core& core) : core_(core) {}

  // Occupies the engine for one WQE. False: others hold it; on_send_engine() is called in the order of asking.
  bool take(EngineUser& user);
  // It waits no longer.
  void leave(EngineUser& user);

 private:
  void on_event(std::uint64_t argument) override;
  void wake();

  Core& core_;
  EngineUser* first_ = nullptr;
  EngineUser* last_ = nullptr;
  Picoseconds free_at_;
  bool scheduled_ = false;
};

}  // namespace orrery::rnic
