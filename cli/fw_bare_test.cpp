#include "cli/fw_bare_test.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/code_coverage.h"
#include "cli/config_options.h"
#include "cli/output.h"
#include "cli/server_host.h"
#include "cli/stop_watch.h"
#include "common/error.h"
#include "common/text.h"
#include "qemu_bridge/launcher/run_directory.h"
#include "systemc_models/rnic/register_names.h"

namespace orrery::cli {

namespace {

// Memory that the program's DMA reaches, as a guest's would be.
constexpr std::uint64_t bare_memory_at = 0x1000'0000;
constexpr std::uint64_t bare_memory_bytes = 16ULL << 20;
constexpr std::size_t most_results = 10'000;

std::optional<std::uint32_t> parse_word(const std::string& text) {
  const bool hexadecimal = text.starts_with("0x");
  std::uint32_t value = 0;
  const char* const begin = text.data() + (hexadecimal ? 2 : 0);
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, value, hexadecimal ? 16 : 10);
  return error == std::errc{} && stop == end && begin != end ? std::optional(value) : std::nullopt;
}

// The offset of a register by its name, as traces print it.
std::optional<std::uint32_t> offset_of(const rnic::RegisterMap* map, const std::string& name) {
  if (map == nullptr) {
    return rnic::register_offset(name);
  }
  for (std::uint32_t offset = 0; offset < map->bar_bytes(); offset += 4) {
    if (map->name(offset) == name) {
      return offset;
    }
  }
  return std::nullopt;
}

void add_fault(FirmwareHost& firmware, rnic::ManagementBlock& block, const std::string& text) {
  std::istringstream stream(text);
  const std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
  const auto refuse = [&text] {
    throw Error(fmt::format("--fault '{}' is none", printable(text)),
                "give \"read NAME VALUE [COUNT]\", \"write NAME VALUE [COUNT]\" or \"dma CHANNEL [COUNT]\"");
  };
  const bool dma = !words.empty() && words[0] == "dma";
  const std::size_t least = dma ? 2 : 3;
  if (words.size() < least || words.size() > least + 1 || (!dma && words[0] != "read" && words[0] != "write")) {
    refuse();
  }
  const auto value = parse_word(words[least - 1]);
  const auto count = words.size() > least ? parse_word(words[least]) : std::optional(rnic::fault_always);
  if (!value || !count || *count == 0 || (dma && *value >= rnic::reg::dma_channels)) {
    refuse();
  }
  if (dma) {
    block.faults().add(rnic::DmaFault{*value, *count});
    return;
  }
  rnic::RegisterMap* map = firmware.function().map();
  const auto offset = offset_of(map, words[1]);
  if (!offset) {
    throw Error(fmt::format("--fault '{}': there is no register {}", printable(text), printable(words[1])),
                map != nullptr ? "the register map's file lists them" : "firmware/interface/registers.h lists them");
  }
  (map != nullptr ? map->faults() : block.faults())
      .add(rnic::RegisterFault{*offset, words[0] == "write", 0xffff'ffffU, *value, *count});
}

void give_memory(pcie::FunctionAccess& function) {
  const int file = ::memfd_create("orrery-fw-test", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bare_memory_bytes)) != 0) {
    throw Error("memory for DMA can't be had");
  }
  const pcie::MapResult result =
      function.dma_map(Iova{bare_memory_at}, bare_memory_bytes, {true, true}, pcie::FileWindow{file, 0}, nullptr);
  ::close(file);
  if (result != pcie::MapResult::ok) {
    throw Error("memory for DMA can't be mapped");
  }
  const std::array<std::byte, 2> memory_and_master{std::byte{0x06}, std::byte{0}};
  function.config_write(4, memory_and_master);
}

std::string xml_text(const std::string& text) {
  std::string quoted;
  for (const char c : text) {
    switch (c) {
      case '&':
        quoted += "&amp;";
        break;
      case '<':
        quoted += "&lt;";
        break;
      case '"':
        quoted += "&quot;";
        break;
      default:
        quoted += c >= ' ' && c < 127 ? c : '?';
    }
  }
  return quoted;
}

void print_coverage(const rnic::RegisterMap& map) {
  std::vector<std::string> never;
  for (const rnic::RegisterUse& one : map.use()) {
    if (one.reads + one.writes == 0) {
      never.push_back(one.name);
    }
  }
  fmt::print("registers: {} of {} accessed{}{}; {} accesses refused\n", map.use().size() - never.size(),
             map.use().size(), never.empty() ? "" : ", never ", fmt::join(never, ", "), map.refused());
}

}  // namespace

std::vector<FwBareResult> bare_test_results(const std::string& console) {
  std::vector<FwBareResult> results;
  std::istringstream lines(console);
  for (std::string line; std::getline(lines, line) && results.size() < most_results;) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) {
      line.pop_back();
    }
    const bool passed = line.starts_with("PASS ");
    if (!passed && !line.starts_with("FAIL ")) {
      continue;
    }
    FwBareResult result;
    result.passed = passed;
    result.name = line.substr(5);
    if (const auto colon = result.name.find(": "); !passed && colon != std::string::npos) {
      result.why = result.name.substr(colon + 2);
      result.name.resize(colon);
    }
    results.push_back(std::move(result));
  }
  return results;
}

std::string bare_test_xml(const std::string& suite, const std::vector<FwBareResult>& results,
                          const std::string& failure) {
  const auto failed = std::count_if(results.begin(), results.end(), [](const FwBareResult& r) { return !r.passed; });
  std::string xml = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" "
      "errors=\"{}\">\n",
      xml_text(suite), results.size(), failed, failure.empty() ? 0 : 1);
  for (const FwBareResult& result : results) {
    xml += fmt::format("  <testcase classname=\"{}\" name=\"{}\"", xml_text(suite), xml_text(result.name));
    xml +=
        result.passed ? "/>\n" : fmt::format(">\n    <failure message=\"{}\"/>\n  </testcase>\n", xml_text(result.why));
  }
  if (!failure.empty()) {
    xml += fmt::format("  <system-err>{}</system-err>\n", xml_text(failure));
  }
  return xml + "</testsuite>\n";
}

int fw_bare_test(const FwBareTestOptions& options) {
  namespace files = std::filesystem;
  const auto quoted = [](const std::string& path) { return nlohmann::json(files::absolute(path).string()).dump(); };
  ConfigOptions settings;
  settings.sets = {"rnic.personality=\"mlx5\"", "rnic.firmware=\"riscv64\"",
                   "topology.switches=0",       "topology.rnics=1",
                   "topology.gpus=0",           "rnic.firmware_elf=" + quoted(options.elf)};
  if (!options.map.empty()) {
    settings.sets.push_back("rnic.firmware_map=" + quoted(options.map));
  }
  const models::ServerConfig config = load(settings).config;
  const StopSignals stop_signals;
  const bridge::RunDirectory run;
  files::create_directory(run.path() / "guest0");
  files::permissions(run.path() / "guest0", files::perms::owner_all);
  std::optional<int> status;
  std::string sentence;
  ServerHostOptions server{run.path()};
  std::optional<CodeLogs> code_logs;
  if (!options.coverage.empty()) {
    require_tracefile(options.coverage, options.elf);
    server.firmware_code_logs = code_logs.emplace().path();
  }
  server.firmware_once = [&](int exit, const std::string& words) {
    status = exit;
    sentence = words;
  };
  ServerHost host(config, server);
  FirmwareHost& firmware = *host.firmware().front();
  give_memory(host.platform().function(0));
  for (const std::string& fault : options.faults) {
    add_fault(firmware, *host.platform().management(0), fault);
  }
  bool stopped = false;
  const StopWatch stop_watch(host.io(), stop_signals, [&] { stopped = true; });
  const bool in_time = host.run_until([&] { return status || stopped; }, std::chrono::seconds(options.seconds));
  std::ifstream log(firmware.spec().console_log, std::ios::binary);
  const std::vector<FwBareResult> results = bare_test_results({std::istreambuf_iterator<char>(log), {}});
  std::string failure;
  if (stopped) {
    failure = "stopped by a signal";
  } else if (!in_time) {
    failure = fmt::format("not at its end after {} s", options.seconds);
  } else if (*status != 0) {
    failure = sentence;
  } else if (results.empty()) {
    failure = "it ended without a line PASS or FAIL on its console";
  }
  for (const FwBareResult& result : results) {
    fmt::print("{} {}{}{}\n", result.passed ? "PASS" : "FAIL", printable(result.name), result.why.empty() ? "" : ": ",
               printable(result.why));
  }
  if (const rnic::RegisterMap* map = firmware.function().map()) {
    print_coverage(*map);
  }
  const auto failed = std::count_if(results.begin(), results.end(), [](const FwBareResult& r) { return !r.passed; });
  fmt::print("{} of {} tests passed\n", results.size() - static_cast<std::size_t>(failed), results.size());
  if (!failure.empty()) {
    note("orrery: {}", failure);
  }
  if (!options.junit.empty()) {
    std::ofstream file(options.junit);
    file << bare_test_xml(files::path(options.elf).stem().string(), results, failure);
    file.close();
    if (!file) {
      discard_file(options.junit);
      throw Error(fmt::format("{} can't be written", options.junit), "name a file that you may write");
    }
  }
  if (code_logs) {
    write_code_coverage(options.elf, code_logs->path(), options.coverage);
  }
  flush_output();
  host.close();
  return failed == 0 && failure.empty() ? 0 : 1;
}

}  // namespace orrery::cli
