#include "qemu_bridge/launcher/qmp_client.h"

#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <utility>

#include "qemu_bridge/launcher/system_text.h"

namespace orrery::bridge {

namespace asio = boost::asio;

namespace {

constexpr std::size_t most_unanswered = 256;

std::string text_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? printable(found->get<std::string>()) : std::string();
}

QmpReply failed_reply(std::string error_class, std::string text) {
  QmpReply reply;
  reply.error_class = std::move(error_class);
  reply.error_text = std::move(text);
  return reply;
}

}  // namespace

struct QmpClient::Unplug {
  Done done;
  asio::steady_timer limit;
  explicit Unplug(asio::io_context& io) : limit(io) {}
};

QmpClient::QmpClient(asio::io_context& io) : io_(io), greeting_limit_(io), alive_(std::make_shared<bool>(true)) {}

QmpClient::~QmpClient() {
  *alive_ = false;
}

void QmpClient::connect(const std::string& path, std::chrono::milliseconds time_limit, Done done) {
  connect_done_ = std::move(done);
  // QEMU writes a line for each message; the longest it has for us is a query's, far below this.
  stream_ = std::make_unique<JsonLineStream>(
      io_, JsonLineStream::Options{.longest_line = 4 << 20, .most_unsent = 4 << 20, .resynchronise = false},
      [this](const nlohmann::json& message) { received(message); },
      [this](const std::string& reason) { lost(reason); });
  const auto deadline = std::chrono::steady_clock::now() + time_limit;
  stream_->connect(path, time_limit, [this, deadline](const std::string& failure) {
    if (!failure.empty()) {
      finish_connect(failure);
      return;
    }
    // A socket that accepts is no QEMU yet: the greeting and the answer come within the same limit.
    greeting_limit_.expires_at(deadline);
    greeting_limit_.async_wait([this, alive = alive_](const boost::system::error_code& cancelled) {
      if (!cancelled && *alive && connect_done_) {
        stream_->close();
        finish_connect("QEMU's monitor doesn't answer (another client may be connected to it)");
      }
    });
  });
}

void QmpClient::finish_connect(const std::string& failure) {
  greeting_limit_.cancel();
  ready_ = failure.empty();
  if (auto done = std::exchange(connect_done_, {})) {
    done(failure);
  }
}

void QmpClient::received(const nlohmann::json& message) {
  if (!greeted_) {
    if (!message.contains("QMP")) {
      stream_->close();
      lost("what listens there is not QEMU's monitor: it sent no QMP greeting");
      return;
    }
    greeted_ = true;
    send_command("qmp_capabilities", nlohmann::json::object(), std::chrono::hours(1), [this](const QmpReply& reply) {
      finish_connect(reply.ok ? std::string() : "QEMU refuses its monitor: " + reply.error_text);
    });
    return;
  }
  if (const auto event = message.find("event"); event != message.end() && event->is_string()) {
    const nlohmann::json data = message.contains("data") ? message["data"] : nlohmann::json::object();
    const std::string name = event->get<std::string>();
    const std::shared_ptr<bool> alive = alive_;
    const std::string device = data.is_object() ? text_of(data, "device") : std::string();
    if (name == "DEVICE_DELETED") {
      finish_unplug(device, {});
    } else if (name == "DEVICE_UNPLUG_GUEST_ERROR") {
      finish_unplug(device, fmt::format("the guest refuses to let go of {}", device));
    }
    if (*alive && on_event_) {
      const Event handler = on_event_;
      handler(name, data);
    }
    return;
  }
  const auto id = message.find("id");
  if (id == message.end() || !id->is_number_unsigned()) {
    return;  // an error about something that we didn't send
  }
  QmpReply reply;
  if (const auto value = message.find("return"); value != message.end()) {
    reply.ok = true;
    reply.value = *value;
  } else if (const auto error = message.find("error"); error != message.end() && error->is_object()) {
    reply.error_class = text_of(*error, "class");
    reply.error_text = text_of(*error, "desc");
  } else {
    reply = failed_reply("GenericError", "the answer has neither a return nor an error");
  }
  answered(id->get<std::uint64_t>(), reply);
}

void QmpClient::answered(std::uint64_t id, const QmpReply& reply) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) {
    return;  // timed out before, or never asked
  }
  const Pending pending = std::move(found->second);
  pending_.erase(found);
  pending.limit->cancel();
  pending.done(reply);
}

void QmpClient::lost(const std::string& reason) {
  const bool was_ready = ready_;
  ready_ = false;
  const std::shared_ptr<bool> alive = alive_;
  auto pending = std::exchange(pending_, {});
  auto unplugs = std::exchange(unplugs_, {});
  if (connect_done_) {
    finish_connect(reason);
  }
  for (auto& [id, entry] : pending) {
    if (!*alive) {
      return;
    }
    entry.limit->cancel();
    entry.done(failed_reply("Closed", reason));
  }
  for (auto& [id, unplug] : unplugs) {
    if (!*alive) {
      return;
    }
    unplug->limit.cancel();
    if (auto done = std::exchange(unplug->done, {})) {
      done(reason);
    }
  }
  if (*alive && was_ready && on_closed_) {
    on_closed_(reason);
  }
}

void QmpClient::execute(const std::string& command, const nlohmann::json& arguments,
                        std::chrono::milliseconds time_limit, Reply done) {
  if (!ready_ || pending_.size() >= most_unanswered) {
    const char* why = ready_ ? "too many commands are unanswered" : "not connected to QEMU's monitor";
    asio::post(io_, [alive = alive_, done = std::move(done), why] {
      if (*alive) {
        done(failed_reply("Closed", why));
      }
    });
    return;
  }
  send_command(command, arguments, time_limit, std::move(done));
}

void QmpClient::send_command(const std::string& command, const nlohmann::json& arguments,
                             std::chrono::milliseconds time_limit, Reply done) {
  const std::uint64_t id = next_id_++;
  nlohmann::json message = {{"execute", command}, {"id", id}};
  if (!arguments.empty()) {
    message["arguments"] = arguments;
  }
  Pending pending{std::move(done), std::make_unique<asio::steady_timer>(io_, time_limit)};
  pending.limit->async_wait([this, alive = alive_, id, command](const boost::system::error_code& cancelled) {
    if (!cancelled && *alive) {
      answered(id, failed_reply("Timeout", fmt::format("QEMU's monitor didn't answer {} in time", command)));
    }
  });
  pending_.emplace(id, std::move(pending));
  stream_->send(message);
}

void QmpClient::close() {
  ready_ = false;
  if (stream_) {
    stream_->close();
  }
  greeting_limit_.cancel();
  connect_done_ = {};
  pending_.clear();
  unplugs_.clear();
}

void QmpClient::unplug(const std::string& id, std::chrono::milliseconds time_limit, Done done) {
  if (unplugs_.count(id) != 0) {
    asio::post(io_, [alive = alive_, done = std::move(done), id] {
      if (*alive) {
        done(fmt::format("{} is being unplugged already", id));
      }
    });
    return;
  }
  // Registered first: the event may come before the command's answer.
  const auto unplug = std::make_shared<Unplug>(io_);
  unplug->done = std::move(done);
  unplug->limit.expires_after(time_limit);
  unplug->limit.async_wait([this, alive = alive_, id](const boost::system::error_code& cancelled) {
    if (!cancelled && *alive) {
      finish_unplug(id, fmt::format("the guest didn't let go of {} in time", id));
    }
  });
  unplugs_.emplace(id, unplug);
  execute("device_del", {{"id", id}}, time_limit, [this, id](const QmpReply& reply) {
    if (reply.ok) {
      return;  // the event says when it is gone
    }
    if (reply.error_class == "DeviceNotFound") {
      finish_unplug(id, {});
    } else if (reply.error_text.find("already in the process of unplug") == std::string::npos) {
      finish_unplug(id, reply.error_text);
    }
  });
}

void QmpClient::finish_unplug(const std::string& id, const std::string& failure) {
  const auto found = unplugs_.find(id);
  if (found == unplugs_.end()) {
    return;
  }
  const std::shared_ptr<Unplug> unplug = found->second;
  unplugs_.erase(found);
  unplug->limit.cancel();
  if (auto done = std::exchange(unplug->done, {})) {
    done(failure);
  }
}

void QmpClient::replug(const nlohmann::json& device, std::chrono::milliseconds time_limit, Done done) {
  const std::string id = device.value("id", std::string());
  unplug(id, time_limit, [this, device, time_limit, done = std::move(done), id](const std::string& failure) {
    if (!failure.empty()) {
      done(failure);
      return;
    }
    execute("device_add", device, time_limit, [done, id](const QmpReply& reply) {
      done(reply.ok ? std::string() : fmt::format("{} can't be plugged in again: {}", id, reply.error_text));
    });
  });
}

}  // namespace orrery::bridge
