// QEMU's machine protocol (QEMU's docs/interop/qmp-spec.rst), one connection, asynchronous.
//
// Every handler is called from the io_context, never from inside the call that it was given to, exactly
// once, unless the client is destroyed first: then not at all. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <nlohmann/json.hpp>

#include "qemu_bridge/launcher/json_line_stream.h"

namespace orrery::bridge {

// What a command came to.
struct QmpReply {
  bool ok = false;
  nlohmann::json value;  // of "return", if ok
  // If not ok: QEMU's error class and text, or the class "Timeout" (no answer in time) or "Closed" (no
  // connection, or it went meanwhile).
  std::string error_class;
  std::string error_text;
};

class QmpClient {
 public:
  using Reply = std::function<void(const QmpReply&)>;
  using Done = std::function<void(const std::string& failure)>;  // empty: it worked
  using Event = std::function<void(const std::string& name, const nlohmann::json& data)>;
  using Closed = std::function<void(const std::string& reason)>;

  explicit QmpClient(boost::asio::io_context& io);
  ~QmpClient();
  QmpClient(const QmpClient&) = delete;
  QmpClient& operator=(const QmpClient&) = delete;

  // Connects (waiting for the socket to appear), reads the greeting and leaves capabilities negotiation
  // mode; all within the time limit. Once.
  void connect(const std::string& path, std::chrono::milliseconds time_limit, Done done);
  // Runs a command. At most 256 may be unanswered.
  void execute(const std::string& command, const nlohmann::json& arguments, std::chrono::milliseconds time_limit,
               Reply done);
  void on_event(Event handler) { on_event_ = std::move(handler); }
  // The connection went, and it wasn't close().
  void on_closed(Closed handler) { on_closed_ = std::move(handler); }
  void close();
  [[nodiscard]] bool connected() const { return ready_; }

  // Unplugs a device and waits until the guest has let go of it (DEVICE_DELETED). A device that isn't
  // there counts as unplugged; one whose unplug is pending already is waited for.
  void unplug(const std::string& id, std::chrono::milliseconds time_limit, Done done);
  // Unplugs it, then adds it again: `device` holds driver, id, bus and properties, as for `-device` in
  // JSON. For a vfio-user device whose server has been restarted.
  void replug(const nlohmann::json& device, std::chrono::milliseconds time_limit, Done done);

 private:
  struct Pending {
    Reply done;
    std::unique_ptr<boost::asio::steady_timer> limit;
  };
  struct Unplug;

  void received(const nlohmann::json& message);
  void answered(std::uint64_t id, const QmpReply& reply);
  void lost(const std::string& reason);
  void send_command(const std::string& command, const nlohmann::json& arguments, std::chrono::milliseconds time_limit,
                    Reply done);
  void finish_connect(const std::string& failure);
  void finish_unplug(const std::string& id, const std::string& failure);

  boost::asio::io_context& io_;
  std::unique_ptr<JsonLineStream> stream_;
  boost::asio::steady_timer greeting_limit_;
  Done connect_done_;
  bool greeted_ = false;
  bool ready_ = false;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, Pending> pending_;
  std::map<std::string, std::shared_ptr<Unplug>> unplugs_;  // by device id
  Event on_event_;
  Closed on_closed_;
  std::shared_ptr<bool> alive_;  // false once this object is gone; posted work looks at it
};

}  // namespace orrery::bridge
