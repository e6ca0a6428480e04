#include "qemu_bridge/launcher/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>

#include "common/error.h"
#include "qemu_bridge/launcher/system_text.h"

namespace orrery::bridge {

namespace asio = boost::asio;

namespace {

// By system call: glibc 2.36 declares the functions without C linkage.
int pidfd_open(pid_t pid) {
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U));
}
int pidfd_send_signal(int pidfd, int number) {
  return static_cast<int>(::syscall(SYS_pidfd_send_signal, pidfd, number, nullptr, 0U));
}

struct Pipe {
  int read = -1;
  int write = -1;
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw Error(fmt::format("no pipe for a child process: {}", system_text(errno)));
    }
    read = ends[0];
    write = ends[1];
  }
  ~Pipe() {
    close_end(read);
    close_end(write);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  static void close_end(int& end) {
    if (end >= 0) {
      ::close(end);
      end = -1;
    }
  }
  int take_read() { return std::exchange(read, -1); }
};

// Everything that the child needs between fork and exec, made before: there, only async-signal-safe
// functions may be called.
struct Launch {
  const char* program;
  std::vector<char*> argv;
  std::vector<char*> envp;
  int output;
  int failure;
  pid_t parent;
};

[[noreturn]] void run_child(const Launch& launch) {
  const auto fail = [&] {
    const int reason = errno;
    // Nothing can be done if this fails: the parent then sees exit status 127 alone.
    [[maybe_unused]] const ssize_t written = ::write(launch.failure, &reason, sizeof reason);
    ::_exit(127);
  };
  ::setpgid(0, 0);
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
    fail();
  }
  if (::getppid() != launch.parent) {
    ::_exit(127);  // the parent died before we had asked to die with it
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGXFSZ, SIG_DFL);
  ::signal(SIGINT, SIG_DFL);
  ::umask(077);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0 || ::dup2(null, STDIN_FILENO) < 0 || ::dup2(launch.output, STDOUT_FILENO) < 0 ||
      ::dup2(launch.output, STDERR_FILENO) < 0) {
    fail();
  }
  // Closed on exec rather than now: the failure pipe is still needed.
  if (::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) != 0) {
    fail();
  }
  ::execve(launch.program, launch.argv.data(), launch.envp.data());
  fail();
  ::_exit(127);
}

std::vector<std::string> child_environment(const ChildOptions& options) {
  std::vector<std::string> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    bool replaced = false;
    for (const auto& [key, value] : options.environment) {
      replaced = replaced || key == name;
    }
    if (!replaced) {
      environment.emplace_back(text);
    }
  }
  for (const auto& [key, value] : options.environment) {
    environment.push_back(fmt::format("{}={}", key, value));
  }
  return environment;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> list;
  list.reserve(strings.size() + 1);
  for (std::string& text : strings) {
    list.push_back(text.data());
  }
  list.push_back(nullptr);
  return list;
}

}  // namespace

std::string ChildExit::sentence() const {
  if (signal != 0) {
    return fmt::format("was killed by signal {} ({})", signal, ::strsignal(signal));
  }
  return fmt::format("ended with exit status {}", status);
}

std::optional<std::uint64_t> process_start_time(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(file, line)) {
    return std::nullopt;
  }
  // The name in parentheses may hold anything; fields 3 … follow its last parenthesis.
  const auto end = line.rfind(')');
  if (end == std::string::npos) {
    return std::nullopt;
  }
  std::istringstream fields(line.substr(end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) {
    fields >> skipped;
  }
  std::uint64_t start = 0;
  if (!(fields >> start)) {
    return std::nullopt;
  }
  return start;
}

class ChildProcess::State : public std::enable_shared_from_this<State> {
 public:
  State(asio::io_context& io, const ChildOptions& options, ExitHandler on_exit)
      : tail_limit_(options.output_tail_bytes), on_exit_(std::move(on_exit)), output_(io), watch_(io), grace_(io) {
    spawn(options);
  }

  void begin() {
    read_output();
    watch();
  }

  void watch() {
    watch_.async_wait(asio::posix::stream_descriptor::wait_read,
                      [self = shared_from_this()](const boost::system::error_code& failed) {
                        if (failed) {
                          return;
                        }
                        // Readiness is a hint: a descriptor number used before can bring one that is stale.
                        if (self->has_ended()) {
                          self->reap();
                        } else {
                          self->watch();
                        }
                      });
  }

  // The owner is going: nothing may be called back any more.
  void abandon() {
    on_exit_ = {};
    if (!exit_) {
      send(SIGKILL);
      // By poll: Asio has made the pidfd non-blocking, and waitid() obeys that.
      pollfd ended{watch_fd_, POLLIN, 0};
      while (::poll(&ended, 1, -1) < 0 && errno == EINTR) {
      }
      reap();
    }
    boost::system::error_code ignored;
    grace_.cancel();
    output_.close(ignored);
    watch_.close(ignored);
  }

  void send(int number) {
    if (!exit_ && pidfd_send_signal(watch_.native_handle(), number) != 0 && errno != ESRCH) {
      throw Error(fmt::format("process {} can't be signalled: {}", pid_, system_text(errno)));
    }
  }

  void terminate(std::chrono::milliseconds grace) {
    if (exit_) {
      return;
    }
    send(SIGTERM);
    grace_.expires_after(grace);
    grace_.async_wait([self = shared_from_this()](const boost::system::error_code& cancelled) {
      if (!cancelled) {
        self->send(SIGKILL);
      }
    });
  }

  [[nodiscard]] int pid() const { return pid_; }
  [[nodiscard]] std::uint64_t start_time() const { return start_time_; }
  [[nodiscard]] const std::optional<ChildExit>& exit() const { return exit_; }
  [[nodiscard]] bool has_ended() const {
    siginfo_t info{};
    return exit_ || (::waitid(P_PIDFD, static_cast<id_t>(watch_fd_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                     info.si_pid != 0);
  }
  const std::string& tail() {
    if (output_.is_open()) {
      std::array<char, 4096> more{};
      ssize_t got = 0;
      while ((got = ::read(output_.native_handle(), more.data(), more.size())) > 0) {
        keep(std::string_view(more.data(), static_cast<std::size_t>(got)));
      }
    }
    return tail_;
  }

 private:
  void spawn(const ChildOptions& options) {
    Pipe output;
    Pipe failure;
    std::vector<std::string> words{options.program};
    words.insert(words.end(), options.arguments.begin(), options.arguments.end());
    std::vector<std::string> environment = child_environment(options);
    const Launch launch{options.program.c_str(), pointers(words), pointers(environment), output.write,
                        failure.write,           ::getpid()};
    const pid_t pid = ::fork();
    if (pid < 0) {
      throw Error(fmt::format("{} can't be started: {}", options.program, system_text(errno)));
    }
    if (pid == 0) {
      run_child(launch);
    }
    pid_ = pid;
    Pipe::close_end(output.write);
    Pipe::close_end(failure.write);
    // Ends when exec closes the pipe, or brings exec's errno.
    int reason = 0;
    ssize_t got = 0;
    do {
      got = ::read(failure.read, &reason, sizeof reason);
    } while (got < 0 && errno == EINTR);
    const int pidfd = got == 0 ? pidfd_open(pid) : -1;
    if (pidfd < 0) {
      if (got == 0) {
        reason = errno;
        ::kill(pid, SIGKILL);  // our own child, not yet waited for: the pid is still its
      }
      ::waitpid(pid, nullptr, 0);
      throw Error(fmt::format("{} can't be started: {}", options.program, system_text(reason)));
    }
    watch_.assign(pidfd);
    watch_fd_ = pidfd;
    // Our end only: the child's writes still block when the pipe is full.
    ::fcntl(output.read, F_SETFL, O_NONBLOCK);
    output_.assign(output.take_read());
    start_time_ = process_start_time(pid).value_or(0);
  }

  void read_output() {
    output_.async_read_some(asio::buffer(chunk_),
                            [self = shared_from_this()](const boost::system::error_code& failed, std::size_t bytes) {
                              self->keep(std::string_view(self->chunk_.data(), bytes));
                              if (failed) {
                                self->output_ended_ = true;
                                self->report();
                                return;
                              }
                              self->read_output();
                            });
  }

  void keep(std::string_view bytes) {
    tail_.append(bytes);
    if (tail_.size() > tail_limit_) {
      tail_.erase(0, tail_.size() - tail_limit_);
    }
  }

  void reap() {
    siginfo_t info{};
    int result = 0;
    do {
      result = ::waitid(P_PIDFD, static_cast<id_t>(watch_.native_handle()), &info, WEXITED | WNOHANG);
    } while (result != 0 && errno == EINTR);
    ChildExit exit;
    if (result == 0 && info.si_pid != 0) {
      if (info.si_code == CLD_EXITED) {
        exit.status = info.si_status;
      } else {
        exit.signal = info.si_status;
      }
    }
    exit_ = exit;
    grace_.cancel();
    // A grandchild may hold the output pipe open for ever: wait for its end, but not long.
    grace_.expires_after(std::chrono::milliseconds(200));
    grace_.async_wait([self = shared_from_this()](const boost::system::error_code& cancelled) {
      if (!cancelled) {
        self->output_ended_ = true;
        self->report();
      }
    });
    report();
  }

  void report() {
    if (!exit_ || !output_ended_) {
      return;
    }
    grace_.cancel();
    if (auto handler = std::exchange(on_exit_, {})) {
      handler(*exit_);
    }
  }

  std::size_t tail_limit_;
  ExitHandler on_exit_;
  asio::posix::stream_descriptor output_;
  asio::posix::stream_descriptor watch_;  // the pidfd: readable once the child has ended
  asio::steady_timer grace_;
  std::array<char, 4096> chunk_{};
  std::string tail_;
  int pid_ = -1;
  int watch_fd_ = -1;
  std::uint64_t start_time_ = 0;
  bool output_ended_ = false;
  std::optional<ChildExit> exit_;
};

ChildProcess::ChildProcess(asio::io_context& io, const ChildOptions& options, ExitHandler on_exit)
    : state_(std::make_shared<State>(io, options, std::move(on_exit))) {
  state_->begin();
}

ChildProcess::~ChildProcess() {
  state_->abandon();
}

bool ChildProcess::has_ended() const {
  return state_->has_ended();
}
int ChildProcess::pid() const {
  return state_->pid();
}
std::uint64_t ChildProcess::start_time() const {
  return state_->start_time();
}
const std::optional<ChildExit>& ChildProcess::exit() const {
  return state_->exit();
}
std::string ChildProcess::output_tail() const {
  return printable(state_->tail());
}
void ChildProcess::signal(int number) {
  state_->send(number);
}
void ChildProcess::kill() {
  state_->send(SIGKILL);
}
void ChildProcess::terminate(std::chrono::milliseconds grace) {
  state_->terminate(grace);
}

}  // namespace orrery::bridge
