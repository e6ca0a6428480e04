#include "qemu_bridge/launcher/guest_agent.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "qemu_bridge/launcher/json_line_stream.h"
#include "qemu_bridge/launcher/system_text.h"

namespace orrery::bridge {

namespace asio = boost::asio;
using std::chrono::milliseconds;

namespace {

// The agent keeps 16 MiB of each stream: in base64 and twice, with room for the rest of the answer.
constexpr std::size_t longest_answer = 48 << 20;
constexpr std::size_t most_input = 16 << 20;
constexpr milliseconds between_syncs{1000};
constexpr milliseconds first_poll{10};
constexpr milliseconds slowest_poll{200};
// How long a command keeps the agent to itself: most end before, and are spared connecting anew for each question.
constexpr milliseconds undisturbed{1000};

constexpr milliseconds last_words{1000};  // for killing what ran out of time

constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// A number that an earlier conversation over the same port won't have used.
std::uint32_t fresh_id() {
  std::uint32_t id = 0;
  if (::getrandom(&id, sizeof id, 0) != static_cast<ssize_t>(sizeof id)) {
    id = static_cast<std::uint32_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  return id & 0x7fffffffU;
}

constexpr const char* no_agent = "the guest's agent doesn't answer";
constexpr const char* no_agent_remedy =
    "the guest's image needs the package qemu-guest-agent, running; a guest that is still booting, or one whose "
    "agent another program talks to, doesn't answer yet either";

}  // namespace

std::string base64_encode(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t word = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      word = word << 8 | (i < count ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      text += i <= count ? alphabet[word >> (18 - 6 * i) & 63] : '=';
    }
  }
  return text;
}

bool base64_decode(std::string_view text, std::string& bytes) {
  bytes.clear();
  if (text.size() % 4 != 0) {
    return false;
  }
  bytes.reserve(text.size() / 4 * 3);
  for (std::size_t at = 0; at < text.size(); at += 4) {
    std::uint32_t word = 0;
    std::size_t padding = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      const char c = text[at + i];
      const auto digit = alphabet.find(c);
      if (c == '=' && i >= 2 && at + 4 == text.size()) {
        ++padding;
        word <<= 6;
      } else if (digit == std::string_view::npos || padding != 0) {
        return false;
      } else {
        word = word << 6 | static_cast<std::uint32_t>(digit);
      }
    }
    for (std::size_t i = 0; i + padding < 3; ++i) {
      bytes += static_cast<char>(word >> (16 - 8 * i) & 255);
    }
  }
  return true;
}

class GuestAgent::State : public std::enable_shared_from_this<State> {
 public:
  State(asio::io_context& io, std::string path) : io_(io), path_(std::move(path)), timer_(io), limit_(io), poll_(io) {}

  void exec(std::vector<std::string> command, std::string input, milliseconds time_limit, Done done) {
    if (done_) {
      fail_later(std::move(done), "another command is being run in the guest", {});
      return;
    }
    if (!command.empty() && input.size() > most_input) {
      fail_later(std::move(done), "the standard input is longer than 16 MiB", "pass it by a shared directory");
      return;
    }
    done_ = std::move(done);
    command_ = std::move(command);
    input_ = std::move(input);
    limit_.expires_after(time_limit);
    limit_.async_wait([self = shared_from_this(), time_limit](const boost::system::error_code& cancelled) {
      if (!cancelled) {
        self->ran_out(time_limit);
      }
    });
    connect(std::min(time_limit, answer_limit_));
  }

  void abandon() {
    done_ = {};
    disconnect();
  }

  void set_answer_limit(milliseconds limit) { answer_limit_ = limit; }

 private:
  using Answer = std::function<void(const nlohmann::json& message)>;

  void fail_later(Done done, std::string failure, std::string remedy) {
    GuestExecResult result;
    result.failure = std::move(failure);
    result.remedy = std::move(remedy);
    asio::post(io_, [self = shared_from_this(), done = std::move(done), result = std::move(result)] { done(result); });
  }

  void finish(const GuestExecResult& result) {
    disconnect();
    if (auto done = std::exchange(done_, {})) {
      done(result);
    }
  }

  void fail(std::string failure, std::string remedy = {}) {
    GuestExecResult result;
    result.failure = std::move(failure);
    result.remedy = std::move(remedy);
    finish(result);
  }

  void disconnect() {
    release();
    limit_.cancel();
    guest_pid_.reset();
    ran_out_.clear();
  }

  // Lets another program talk to the agent; connect() goes on where this was.
  void release() {
    timer_.cancel();
    poll_.cancel();
    stream_.reset();
    expected_ = {};
    synchronised_ = false;
  }

  void connect(milliseconds answer_limit) {
    // By weak pointers: the stream is this object's own.
    stream_ = std::make_unique<JsonLineStream>(
        io_, JsonLineStream::Options{.longest_line = longest_answer, .most_unsent = 32 << 20, .resynchronise = true},
        [weak = weak_from_this()](const nlohmann::json& message) {
          if (auto self = weak.lock()) {
            self->received(message);
          }
        },
        [weak = weak_from_this()](const std::string& reason) {
          if (auto self = weak.lock()) {
            self->fail(fmt::format("the connection to the guest's agent broke: {}", reason),
                       "the guest may have ended: see its console");
          }
        });
    stream_->connect(path_, answer_limit, [weak = weak_from_this(), answer_limit](const std::string& failure) {
      auto self = weak.lock();
      if (!self) {
        return;
      }
      if (!failure.empty()) {
        self->fail(fmt::format("the guest's agent can't be reached: {}", failure), "is the guest still running?");
        return;
      }
      self->timer_.expires_after(answer_limit);
      self->timer_.async_wait([self](const boost::system::error_code& cancelled) {
        if (!cancelled && !self->synchronised_) {
          self->fail(no_agent, no_agent_remedy);
        }
      });
      self->synchronise();
    });
  }

  // Asks for an answer that can't be anything left over from before; again each second, because what is
  // written while no agent has the port open may be lost.
  void synchronise() {
    if (synchronised_ || !stream_) {
      return;
    }
    sync_id_ = fresh_id();
    // The 0xff makes the agent drop half a command that a client before us may have left.
    stream_->send({{"execute", "guest-sync-delimited"}, {"arguments", {{"id", sync_id_}}}}, "\xff");
    poll_.expires_after(between_syncs);
    poll_.async_wait([self = shared_from_this()](const boost::system::error_code& cancelled) {
      if (!cancelled) {
        self->synchronise();
      }
    });
  }

  void received(const nlohmann::json& message) {
    if (!synchronised_) {
      const auto id = message.find("return");
      if (id != message.end() && id->is_number_unsigned() && id->get<std::uint64_t>() == sync_id_) {
        synchronised_ = true;
        timer_.cancel();
        poll_.cancel();
        begin();
      }
      return;
    }
    if (auto expected = std::exchange(expected_, {})) {
      expected(message);
    }
  }

  void ask(const char* command, nlohmann::json arguments, Answer answer) {
    expected_ = std::move(answer);
    if (stream_) {
      stream_->send({{"execute", command}, {"arguments", std::move(arguments)}});
    }
  }

  // What there is to say on a new connection.
  void begin() {
    if (!ran_out_.empty()) {
      kill();
      return;
    }
    if (guest_pid_) {
      ask_status();
      return;
    }
    if (command_.empty()) {
      finish({});  // a ping
      return;
    }
    nlohmann::json arguments = {{"path", command_.front()},
                                {"arg", std::vector<std::string>(command_.begin() + 1, command_.end())},
                                {"capture-output", true}};
    if (!input_.empty()) {
      arguments["input-data"] = base64_encode(input_);
    }
    ask("guest-exec", std::move(arguments), [this](const nlohmann::json& message) { started(message); });
  }

  void started(const nlohmann::json& message) {
    if (refused(message)) {
      return;
    }
    const auto& value = message.value("return", nlohmann::json::object());
    if (!value.is_object() || !value.contains("pid") || !value["pid"].is_number_integer()) {
      fail("the guest's agent answers guest-exec without a pid");
      return;
    }
    guest_pid_ = value["pid"].get<std::int64_t>();
    interval_ = first_poll;
    share_from_ = std::chrono::steady_clock::now() + undisturbed;
    poll_later();
  }

  void poll_later() {
    if (std::chrono::steady_clock::now() >= share_from_) {
      release();
    }
    poll_.expires_after(interval_);
    interval_ = std::min(interval_ * 2, slowest_poll);
    poll_.async_wait([self = shared_from_this()](const boost::system::error_code& cancelled) {
      if (cancelled || !self->guest_pid_) {
        return;
      }
      if (self->stream_) {
        self->ask_status();
      } else {
        self->connect(self->answer_limit_);
      }
    });
  }

  void ask_status() {
    ask("guest-exec-status", {{"pid", *guest_pid_}}, [this](const nlohmann::json& message) { polled(message); });
  }

  void polled(const nlohmann::json& message) {
    if (refused(message)) {
      return;
    }
    const auto& value = message.value("return", nlohmann::json::object());
    if (!value.is_object() || !value.contains("exited") || !value["exited"].is_boolean()) {
      fail("the guest's agent answers guest-exec-status without saying whether the command has ended");
      return;
    }
    if (!value["exited"].get<bool>()) {
      poll_later();
      return;
    }
    GuestExecResult result;
    if (!stream_of(value, "out", result.output, result.output_truncated) ||
        !stream_of(value, "err", result.errors, result.errors_truncated)) {
      fail("the guest's agent sent output that is not base64");
      return;
    }
    const auto number = [&](const char* key) {
      const auto found = value.find(key);
      return found != value.end() && found->is_number_integer() ? found->get<int>() : 0;
    };
    const int signal = number("signal");
    result.exit_code = signal != 0 ? 128 + signal : number("exitcode");
    finish(result);
  }

  static bool stream_of(const nlohmann::json& value, const std::string& name, std::string& into, bool& truncated) {
    const auto flag = value.find(name + "-truncated");
    truncated = flag != value.end() && flag->is_boolean() && flag->get<bool>();
    const auto data = value.find(name + "-data");
    if (data == value.end()) {
      return true;
    }
    return data->is_string() && base64_decode(data->get_ref<const std::string&>(), into);
  }

  // An error answer ends the command.
  bool refused(const nlohmann::json& message) {
    const auto error = message.find("error");
    if (error == message.end()) {
      return false;
    }
    std::string text = "no reason given";
    std::string error_class;
    if (error->is_object()) {
      const auto string_of = [&](const char* key) {
        const auto found = error->find(key);
        return found != error->end() && found->is_string() ? printable(found->get<std::string>()) : std::string();
      };
      text = string_of("desc");
      error_class = string_of("class");
    }
    if (error_class == "CommandNotFound") {
      fail(fmt::format("the guest's agent doesn't run commands: {}", text),
           "its configuration blocks guest-exec: allow it in /etc/qemu/qemu-ga.conf of the guest");
    } else {
      fail(fmt::format("the guest can't run {}: {}", command_.empty() ? "" : command_.front(), text));
    }
    return true;
  }

  void ran_out(milliseconds time_limit) {
    if (!guest_pid_) {
      if (!stream_ || !stream_->is_open()) {
        fail(fmt::format("the guest's agent can't be reached: nothing listens on {}", path_),
             "is the guest still running?");
      } else if (!synchronised_) {
        fail(no_agent, no_agent_remedy);
      } else {
        fail(fmt::format("the command didn't start within {} ms", time_limit.count()));
      }
      return;
    }
    ran_out_ = fmt::format("the command didn't end within {} ms", time_limit.count());
    if (synchronised_) {
      poll_.cancel();
      kill();
    } else {
      release();
      connect(last_words);
    }
  }

  // Its whole life is over for us; in the guest too, if the agent still answers.
  void kill() {
    const nlohmann::json arguments = {{"path", "kill"}, {"arg", {"-KILL", std::to_string(*guest_pid_)}}};
    ask("guest-exec", arguments, [this](const nlohmann::json& message) {
      fail(std::string(ran_out_),
           message.contains("error") ? "it still runs in the guest: there is no kill program" : "it was killed");
    });
    timer_.expires_after(last_words);
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& cancelled) {
      if (!cancelled) {
        self->fail(std::string(self->ran_out_), "it may still run in the guest: its agent doesn't answer any more");
      }
    });
  }

  asio::io_context& io_;
  std::string path_;
  asio::steady_timer timer_;  // until the agent answers at all
  asio::steady_timer limit_;  // of the whole command
  asio::steady_timer poll_;
  std::unique_ptr<JsonLineStream> stream_;
  Answer expected_;
  Done done_;
  std::vector<std::string> command_;
  std::string input_;
  milliseconds answer_limit_{10'000};
  milliseconds interval_{first_poll};
  std::uint32_t sync_id_ = 0;
  bool synchronised_ = false;
  std::optional<std::int64_t> guest_pid_;
  std::chrono::steady_clock::time_point share_from_;
  std::string ran_out_;  // not empty: the command is to be killed, and this is why
};

GuestAgent::GuestAgent(asio::io_context& io, std::string socket_path)
    : state_(std::make_shared<State>(io, std::move(socket_path))) {}

GuestAgent::~GuestAgent() {
  state_->abandon();
}

void GuestAgent::ping(milliseconds time_limit, std::function<void(const std::string& failure)> done) {
  state_->exec({}, {}, time_limit, [done = std::move(done)](const GuestExecResult& result) { done(result.failure); });
}

void GuestAgent::exec(std::vector<std::string> command, std::string input, milliseconds time_limit, Done done) {
  state_->exec(std::move(command), std::move(input), time_limit, std::move(done));
}

void GuestAgent::set_answer_limit(milliseconds limit) {
  state_->set_answer_limit(limit);
}

}  // namespace orrery::bridge
