#include "cli/fw_command.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/fw_client.h"
#include "cli/output.h"
#include "common/error.h"

namespace orrery::cli {

namespace {

struct FwTarget {
  std::string server;
  std::string rnic;
  bool json = false;
};

void add_fw_target(CLI::App& command, FwTarget& target) {
  command.add_option("server", target.server,
                     "The server: its directory, or the name of its run (default: the only one with RNIC firmware)");
  command.add_option("--rnic", target.rnic, "Only this RNIC, as in rnic0 (default: all)");
}

nlohmann::json fw_status(const FwTarget& target) {
  return ask_firmware(find_firmware_control(target.server), {{"do", "status"}, {"rnic", target.rnic}});
}

void show_status(const FwTarget& target) {
  const nlohmann::json answer = fw_status(target);
  if (target.json) {
    fmt::print("{}\n", answer.at("firmware").dump());
    return;
  }
  fmt::print("{:<8} {:<8} {:<6} {:>9} {:>7} {:>7} {:>7}  {}\n", "rnic", "target", "ready", "commands", "failed",
             "faults", "crashes", "last crash");
  for (const nlohmann::json& one : answer.at("firmware")) {
    std::string crash = "-";
    if (one.contains("last_crash")) {
      const nlohmann::json& last = one.at("last_crash");
      crash = fmt::format("{}, syndrome {:#x}, last command {:#x}", last.at("cause").get<std::string>(),
                          last.at("syndrome").get<std::uint32_t>(), last.at("last_opcode").get<std::uint32_t>());
    }
    fmt::print("{:<8} {:<8} {:<6} {:>9} {:>7} {:>7} {:>7}  {}\n", one.at("rnic").get<std::string>(),
               one.at("target").get<std::string>(), one.at("ready").get<bool>() ? "yes" : "no",
               one.at("commands").get<std::uint64_t>(), one.at("commands_failed").get<std::uint64_t>(),
               one.at("faults_struck").get<std::uint64_t>(), one.at("crashes").get<std::uint64_t>(), crash);
  }
}

struct FwTraceOptions {
  FwTarget target;
  std::uint64_t count = 0;
};

void show_trace(const FwTraceOptions& options) {
  std::uint64_t left = options.count;
  if (!options.target.json) {
    fmt::print("{:>16}  {:<6} {:>3}  {:<28} {:>6} {:>8} {:>6} {:>10} {:>12} {:>12}\n", "time us", "rnic", "fn",
               "command", "opcode", "delivery", "status", "syndrome", "waited us", "handled us");
    flush_output();
  }
  follow_commands(find_firmware_control(options.target.server), options.target.rnic, [&](const nlohmann::json& c) {
    if (options.target.json) {
      fmt::print("{}\n", c.dump());
    } else {
      fmt::print("{:>16.3f}  {:<6} {:>3}  {:<28} {:>#6x} {:>#8x} {:>#6x} {:>#10x} {:>12.3f} {:>12.3f}\n",
                 c.at("time_us").get<double>(), c.at("rnic").get<std::string>(), c.at("function").get<std::uint32_t>(),
                 c.at("name").get<std::string>(), c.at("opcode").get<std::uint32_t>(),
                 c.at("delivery").get<std::uint32_t>(), c.at("status").get<std::uint32_t>(),
                 c.at("syndrome").get<std::uint32_t>(), c.at("waited_us").get<double>(),
                 c.at("handled_us").get<double>());
    }
    flush_output();
    return left == 0 || --left != 0;
  });
}

struct FwInjectOptions {
  FwTarget target;
  std::optional<std::uint32_t> opcode;
  std::uint32_t status = 1;
  std::optional<std::uint32_t> syndrome;
  std::optional<std::uint32_t> read_register;
  std::optional<std::uint32_t> write_register;
  std::optional<std::uint32_t> dma;
  std::uint32_t value = 0;
  std::uint32_t mask = 0xffff'ffffU;
  std::optional<std::uint32_t> count;
  bool clear = false;
};

void inject_fault(const FwInjectOptions& options) {
  const int kinds = static_cast<int>(options.opcode.has_value()) + static_cast<int>(options.read_register.has_value()) +
                    static_cast<int>(options.write_register.has_value()) + static_cast<int>(options.dma.has_value()) +
                    static_cast<int>(options.clear);
  if (kinds != 1) {
    throw Error("one fault at a time", "give one of --opcode, --read, --write, --dma, --clear");
  }
  nlohmann::json request{{"rnic", options.target.rnic}};
  if (options.clear) {
    request["do"] = "clear_faults";
  } else if (options.opcode) {
    request["do"] = "fail";
    request["opcode"] = *options.opcode;
    request["status"] = options.status;
    if (options.syndrome) {
      request["syndrome"] = *options.syndrome;
    }
  } else if (options.dma) {
    request["do"] = "dma_fault";
    request["channel"] = *options.dma;
  } else {
    request["do"] = "register_fault";
    request["offset"] = options.read_register ? *options.read_register : *options.write_register;
    request["access"] = options.read_register ? "read" : "write";
    request["value"] = options.value;
    request["mask"] = options.mask;
  }
  if (options.count) {
    request["count"] = *options.count;
  }
  ask_firmware(find_firmware_control(options.target.server), request);
}

struct FwGdbOptions {
  FwTarget target;
  std::string gdb = "gdb-multiarch";
  std::vector<std::string> arguments;
};

// Becomes the debugger.
void debug(const FwGdbOptions& options) {
  const nlohmann::json answer = fw_status(options.target);
  const nlohmann::json& all = answer.at("firmware");
  if (all.size() != 1) {
    throw Error("this server has more than one RNIC", "name one: --rnic rnic0");
  }
  if (!all[0].contains("gdb_socket")) {
    throw Error(fmt::format("{}: its firmware is linked into the server", all[0].at("rnic").get<std::string>()),
                "run it on a machine of its own: rnic.firmware = \"riscv64\"");
  }
  std::vector<std::string> words{options.gdb,
                                 "-q",
                                 "-ex",
                                 "set confirm off",
                                 "-ex",
                                 "set tcp connect-timeout 10",
                                 all[0].at("elf").get<std::string>(),
                                 "-ex",
                                 "target remote " + all[0].at("gdb_socket").get<std::string>()};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);
  flush_output();
  ::execvp(argv[0], argv.data());
  throw Error(fmt::format("{} can't be run: {}", options.gdb, std::strerror(errno)),
              "./dev setup firmware installs it; or name another with --gdb");
}

}  // namespace

void add_fw_command(CLI::App& app) {
  CLI::App* fw = app.add_subcommand("fw", "The RNIC's firmware: run, watch, disturb, debug and test it");
  fw->require_subcommand(1);
  add_fw_run_command(*fw);
  add_fw_test_command(*fw);

  auto status = std::make_shared<FwTarget>();
  CLI::App* command = fw->add_subcommand("status", "What a running server's firmware has done, and its last crash");
  add_fw_target(*command, *status);
  command->add_flag("--json", status->json, "Print JSON");
  command->callback([status] { show_status(*status); });

  auto trace = std::make_shared<FwTraceOptions>();
  command = fw->add_subcommand("trace", "List every command that the firmware answers, as it does");
  add_fw_target(*command, trace->target);
  command->add_option("--count", trace->count, "End after so many (default: with Ctrl-C)")->check(CLI::PositiveNumber);
  command->add_flag("--json", trace->target.json, "Print a JSON object for each");
  command->callback([trace] { show_trace(*trace); });

  auto inject = std::make_shared<FwInjectOptions>();
  command = fw->add_subcommand("inject", "Make the firmware fail: a command, a register, a DMA transfer");
  command->footer(
      "A command:   orrery fw inject --opcode 0x400 --status 0xf        every CREATE_CQ: no resources\n"
      "A register:  orrery fw inject --read 0x90c --value 3 --count 1   the next read of CONTEXT_STATUS: 3\n"
      "A transfer:  orrery fw inject --dma 0 --count 1                  the next one for commands ends in error\n"
      "No more:     orrery fw inject --clear");
  add_fw_target(*command, inject->target);
  command->add_option("--opcode", inject->opcode, "Fail commands with this opcode");
  command->add_option("--status", inject->status, "… with this status (default: 1, internal error)");
  command->add_option("--syndrome", inject->syndrome, "… and this syndrome (default: 0xfff)");
  command->add_option("--read", inject->read_register, "What the firmware reads at this offset is changed");
  command->add_option("--write", inject->write_register, "What it writes there is changed");
  command->add_option("--value", inject->value, "… to this (default: 0)");
  command->add_option("--mask", inject->mask, "… in these bits (default: all)");
  command->add_option("--dma", inject->dma, "Transfers of this channel fail (0: commands, 1: work requests)");
  command->add_option("--count", inject->count, "How often (default: every time)")->check(CLI::PositiveNumber);
  command->add_flag("--clear", inject->clear, "Take back all that was injected");
  command->callback([inject] { inject_fault(*inject); });

  auto gdb = std::make_shared<FwGdbOptions>();
  command = fw->add_subcommand("gdb", "Debug a running server's firmware (target riscv64) with gdb-multiarch");
  command->footer("orrery fw gdb --rnic rnic0 -- -ex 'break orrery::firmware::create_cq' -ex continue");
  add_fw_target(*command, gdb->target);
  command->add_option("--gdb", gdb->gdb, "The debugger (default: gdb-multiarch)");
  command->add_option("arguments", gdb->arguments, "Further arguments of the debugger, after --");
  command->callback([gdb] { debug(*gdb); });
}

}  // namespace orrery::cli
