#include "cli/firmware_control.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "common/text.h"
#include "firmware/firmware.h"

namespace orrery::cli {

namespace {

using Request = nlohmann::json;
using Answer = nlohmann::ordered_json;

constexpr std::size_t longest_request = 4096;
constexpr std::size_t most_unsent = std::size_t{16} << 20;

Answer refused(const std::string& what, const std::string& remedy) {
  return {{"error", what}, {"remedy", remedy}};
}

// A field that is a number up to `most`; `fallback` if it isn't there.
std::optional<std::uint32_t> request_number(const Request& request, const char* field, std::uint32_t fallback,
                                            std::uint32_t most) {
  const auto found = request.find(field);
  if (found == request.end()) {
    return fallback;
  }
  if (!found->is_number_integer() || (!found->is_number_unsigned() && found->get<std::int64_t>() < 0) ||
      found->get<std::uint64_t>() > most) {
    return std::nullopt;
  }
  return static_cast<std::uint32_t>(found->get<std::uint64_t>());
}

std::string request_text(const Request& request, const char* field) {
  const auto found = request.find(field);
  return found != request.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Answer firmware_status(const ControlledFirmware& firmware) {
  const rnic::ManagementBlock& block = *firmware.block;
  const rnic::ManagementCounters& counters = block.counters();
  Answer status{{"rnic", firmware.rnic},
                {"target", firmware.target},
                {"ready", block.ready()},
                {"commands", counters.commands},
                {"commands_failed", counters.commands_failed},
                {"register_reads", counters.register_reads},
                {"register_writes", counters.register_writes},
                {"dma_bytes", counters.dma_bytes},
                {"faults_struck", firmware.block->faults().struck()},
                {"crashes", counters.crashes}};
  if (counters.crashes != 0) {
    constexpr const char* causes[] = {"power on", "watchdog", "panic", "processor lost"};
    status["last_crash"] = {{"cause", causes[std::min<std::size_t>(block.crash_word(1), std::size(causes) - 1)]},
                            {"syndrome", block.crash_word(2)},
                            {"pending_events", block.crash_word(3)},
                            {"time_us", block.crash_word(4) | std::uint64_t{block.crash_word(5)} << 32},
                            {"last_opcode", block.crash_word(6) >> 16}};
  }
  if (!firmware.gdb_socket.empty()) {
    status["elf"] = firmware.elf;
    status["console_log"] = firmware.console_log;
    status["gdb_socket"] = firmware.gdb_socket;
  }
  return status;
}

Answer inject(const std::vector<ControlledFirmware*>& chosen, const std::string& what, const Request& request) {
  constexpr std::uint32_t any = 0xffff'ffffU;
  const auto count = request_number(request, "count", rnic::fault_always, any);
  if (!count || *count == 0) {
    return refused("count: not a number from 1 on", "leave it out for every one");
  }
  const auto value = [&](const char* field, std::uint32_t fallback, std::uint32_t most) {
    return request_number(request, field, fallback, most);
  };
  for (ControlledFirmware* firmware : chosen) {
    rnic::ManagementBlock& block = *firmware->block;
    bool added = true;
    if (what == "fail") {
      const auto opcode = value("opcode", 0, 0xffff);
      const auto status = value("status", 1, 0xff);
      const auto syndrome = value("syndrome", static_cast<std::uint32_t>(firmware::Syndrome::injected), any);
      if (!opcode || *opcode == 0 || !status || *status == 0 || !syndrome) {
        return refused("fail: opcode (1 to 0xffff), status (1 to 0xff) and syndrome (32 bits) are numbers",
                       "name an opcode as the trace lists it");
      }
      block.fail_commands(*opcode, *status, *syndrome, *count);
    } else if (what == "register_fault") {
      const auto offset = value("offset", any, any);
      const auto mask = value("mask", any, any);
      const auto bits = value("value", 0, any);
      if (!offset || *offset % 4 != 0 || *offset >= rnic::reg::sram + rnic::reg::sram_bytes || !mask || !bits) {
        return refused(fmt::format("register_fault: offset is a multiple of 4 below {:#x}, mask and value have 32 bits",
                                   rnic::reg::sram + rnic::reg::sram_bytes),
                       "docs/firmware.md lists the registers");
      }
      added = block.faults().add(
          rnic::RegisterFault{*offset, request_text(request, "access") == "write", *mask, *bits, *count});
    } else {
      const auto channel = value("channel", 0, rnic::reg::dma_channels - 1);
      if (!channel) {
        return refused(fmt::format("dma_fault: channel is a number below {}", rnic::reg::dma_channels),
                       "0 serves commands, 1 work requests");
      }
      added = block.faults().add(rnic::DmaFault{*channel, *count});
    }
    if (!added) {
      return refused(fmt::format("{} has {} faults already", firmware->rnic, rnic::ManagementFaults::most),
                     "clear them: orrery fw inject --clear");
    }
  }
  return {{"ok", true}};
}

}  // namespace

Answer FirmwareRequests::answer(const Request& request) {
  const std::string what = request_text(request, "do");
  const std::string rnic = request_text(request, "rnic");
  std::vector<ControlledFirmware*> chosen;
  for (ControlledFirmware& firmware : firmware_) {
    if (rnic.empty() || rnic == firmware.rnic) {
      chosen.push_back(&firmware);
    }
  }
  if (chosen.empty()) {
    std::vector<std::string> names;
    for (const ControlledFirmware& firmware : firmware_) {
      names.push_back(firmware.rnic);
    }
    return refused(fmt::format("there is no RNIC '{}' with a firmware", printable(rnic)),
                   fmt::format("there is {}", fmt::join(names, ", ")));
  }
  if (what == "status") {
    Answer all = Answer::array();
    for (const ControlledFirmware* firmware : chosen) {
      all.push_back(firmware_status(*firmware));
    }
    return {{"ok", true}, {"firmware", all}};
  }
  if (what == "trace") {
    return {{"ok", true}};
  }
  if (what == "clear_faults") {
    for (ControlledFirmware* firmware : chosen) {
      firmware->block->faults().clear();
      firmware->block->fail_commands(0, 0, 0, 0);
    }
    return {{"ok", true}};
  }
  if (what == "fail" || what == "register_fault" || what == "dma_fault") {
    return inject(chosen, what, request);
  }
  return refused(fmt::format("there is nothing called '{}' to do", printable(what)),
                 "there is status, trace, fail, register_fault, dma_fault, clear_faults");
}

Answer describe_command(const std::string& rnic, const rnic::CommandRecord& record) {
  const firmware::CommandInfo* info = firmware::find_command(record.opcode);
  const auto micros = [](Picoseconds time) { return static_cast<double>(time.count) / 1e6; };
  return {{"rnic", rnic},
          {"time_us", micros(record.time)},
          {"function", record.function},
          {"opcode", record.opcode},
          {"name", info != nullptr ? info->name : "unknown"},
          {"op_mod", record.op_mod},
          {"delivery", record.delivery},
          {"status", record.status},
          {"syndrome", record.syndrome},
          {"waited_us", micros(record.waited)},
          {"handled_us", micros(record.handled)}};
}

FirmwareControl::FirmwareControl(boost::asio::io_context& io, const std::filesystem::path& socket,
                                 std::vector<ControlledFirmware> firmware)
    : io_(io),
      requests_(std::move(firmware)),
      listening_(socket),
      acceptor_(io, ::fcntl(listening_.fd(), F_DUPFD_CLOEXEC, 0)) {
  for (const ControlledFirmware& one : requests_.firmware()) {
    listeners_.push_back(std::make_unique<Listener>(*this, one.rnic));
    one.block->observe(listeners_.back().get());
  }
  wait_for_client();
}

FirmwareControl::~FirmwareControl() {
  *alive_ = false;
  for (const ControlledFirmware& one : requests_.firmware()) {
    one.block->observe(nullptr);
  }
}

void FirmwareControl::wait_for_client() {
  acceptor_.async_wait(boost::asio::posix::descriptor_base::wait_read,
                       [this, alive = alive_](const boost::system::error_code& error) {
                         if (error || !*alive) {
                           return;
                         }
                         FileDescriptor socket(::accept4(listening_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
                         if (socket && clients_.size() < most_clients) {
                           welcome(std::move(socket));
                         }
                         wait_for_client();
                       });
}

void FirmwareControl::welcome(FileDescriptor socket) {
  clients_.emplace_back();
  const auto client = std::prev(clients_.end());
  bridge::JsonLineStream::Options options;
  options.longest_line = longest_request;
  options.most_unsent = most_unsent;
  client->stream = std::make_unique<bridge::JsonLineStream>(
      io_, options,
      [this, client](const Request& request) {
        const Answer reply = requests_.answer(request);
        client->traces = client->traces || (request_text(request, "do") == "trace" && reply.contains("ok"));
        client->stream->send(Request(reply));
      },
      [this, client](const std::string& /*reason*/) {
        // Not from inside the stream's own handler.
        boost::asio::post(io_, [this, client, alive = alive_] {
          if (*alive) {
            clients_.erase(client);
          }
        });
      });
  client->stream->adopt(std::move(socket));
}

void FirmwareControl::publish(const std::string& rnic, const rnic::CommandRecord& record) {
  if (std::none_of(clients_.begin(), clients_.end(), [](const Client& client) { return client.traces; })) {
    return;
  }
  const Request message = describe_command(rnic, record);
  for (const Client& client : clients_) {
    if (client.traces) {
      client.stream->send(message);
    }
  }
}

}  // namespace orrery::cli
