#include "cli/stop_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include <boost/asio/posix/stream_descriptor.hpp>

namespace orrery::cli {

class StopWatch::State : public std::enable_shared_from_this<State> {
 public:
  State(boost::asio::io_context& io, int descriptor, std::function<void()> stop) : pipe_(io), stop_(std::move(stop)) {
    const int own = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (own < 0) {
      throw std::system_error(errno, std::generic_category(), "the pipe for signals can't be watched");
    }
    pipe_.assign(own);
  }

  void listen() {
    pipe_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       unsigned char number = 0;
                       if (error || !self->stop_) {
                         return;
                       }
                       if (::read(self->pipe_.native_handle(), &number, 1) == 1) {
                         self->stop_();
                       }
                       if (self->stop_) {
                         self->listen();
                       }
                     });
  }

  void end() {
    stop_ = {};
    boost::system::error_code ignored;
    pipe_.close(ignored);
  }

 private:
  boost::asio::posix::stream_descriptor pipe_;
  std::function<void()> stop_;
};

StopWatch::StopWatch(boost::asio::io_context& io, const StopSignals& signals, std::function<void()> stop)
    : state_(std::make_shared<State>(io, signals.descriptor(), std::move(stop))) {
  state_->listen();
}

StopWatch::~StopWatch() {
  state_->end();
}

}  // namespace orrery::cli
