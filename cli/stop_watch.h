// Hears in an event loop what StopSignals has caught.
#pragma once

#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>

#include "common/stop_signals.h"

namespace orrery::cli {

class StopWatch {
 public:
  // `stop` is called from the io_context once for each signal, also for those that came before. `signals` outlives
  // this.
  StopWatch(boost::asio::io_context& io, const StopSignals& signals, std::function<void()> stop);
  ~StopWatch();
  StopWatch(const StopWatch&) = delete;
  StopWatch& operator=(const StopWatch&) = delete;

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace orrery::cli
