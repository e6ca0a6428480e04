#include "cli/demo_command.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/config_options.h"
#include "cli/demo_guests.h"
#include "cli/demo_rdma.h"
#include "cli/guest_report.h"
#include "cli/guest_run.h"
#include "cli/output.h"
#include "cli/server_host.h"
#include "cli/stop_watch.h"
#include "common/error.h"
#include "common/text.h"
#include "qemu_bridge/launcher/guest_console.h"

namespace orrery::cli {

namespace {

using Clock = std::chrono::steady_clock;

struct DemoCommandOptions {
  ConfigOptions config;
  GuestOptions guest;
  std::string size = "1M";
  bool json = false;
};

// ACS Control values (facts of the kernel's defaults): everything off, and what Linux sets.
constexpr std::uint16_t acs_direct = 0x00;
constexpr std::uint16_t acs_redirect = 0x1d;

std::uint64_t number(const nlohmann::json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number_unsigned() ? at->get<std::uint64_t>() : 0;
}

std::string text(const nlohmann::json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : std::string{};
}

std::string bytes_text(std::uint64_t bytes) {
  if (bytes != 0 && bytes % (1U << 20) == 0) {
    return fmt::format("{} MiB", bytes >> 20);
  }
  if (bytes != 0 && bytes % 1024 == 0) {
    return fmt::format("{} KiB", bytes >> 10);
  }
  return fmt::format("{} B", bytes);
}

class Demo {
 public:
  explicit Demo(const DemoCommandOptions& options) : options_(options), begin_(Clock::now()) {}

  int run() {
    const StopSignals stop_signals;
    models::ServerConfig config = load(options_.config).config;
    config.time_mode = models::TimeMode::timed;
    const models::Topology topology = models::Topology::from(config);
    config.guests = demo_guests(config, topology);
    const models::GuestConfig& guest = config.guests.front();
    step("Emulated server: {}, {}, {}, {}; simulated time in picoseconds", counted(topology.sockets.size(), "socket"),
         counted(topology.switches.size(), "switch"), counted(count(topology, models::EndpointKind::rnic), "RNIC"),
         counted(count(topology, models::EndpointKind::gpu), "GPU"));
    const bridge::RunDirectory run;
    for (const models::GuestConfig& each : config.guests) {
      std::filesystem::create_directory(run.path() / each.name);
      std::filesystem::permissions(run.path() / each.name, std::filesystem::perms::owner_all);
    }
    ServerHost host(config, {run.path(), false});
    host_ = &host;
    const StopWatch stop_watch(host.io(), stop_signals, [this] { interrupted_ = true; });

    DemoGuests guests(host, interrupted_);
    guests_ = &guests;
    // RDMA takes two guests, each with an RNIC that its mlx5 driver uses.
    const std::vector<std::string> responders = rnics_of(topology, guest);
    const std::vector<std::string> requesters =
        config.guests.size() > 1 ? rnics_of(topology, config.guests[1]) : std::vector<std::string>{};
    // With one RNIC in the second guest it is known which one the programs use.
    const bool rdma =
        config.rnic.personality == models::RnicPersonality::mlx5 && requesters.size() == 1 && !responders.empty();
    for (unsigned i = 0; i < (rdma ? 2U : 1U); ++i) {
      GuestOptions options = options_.guest;
      if (rdma) {
        const std::vector<std::string> network = demo_network_arguments(run, i);
        options.qemu_arguments.insert(options.qemu_arguments.end(), network.begin(), network.end());
      }
      guests.start(run, prepare_guest(run, topology, config, config.guests[i], options,
                                      [&](const std::string& endpoint) { return host.socket(endpoint).string(); }));
    }
    const std::string& note = guests[0].guest().accelerator_note;
    step("Booting {} on stock QEMU ({})", rdma ? "two unmodified Debian guests" : "an unmodified Debian guest",
         note.empty() ? "KVM" : note);
    guests.wait_until_up();
    const double boot_seconds = seconds();
    step("Up: {}", first_line(exec({"uname", "-r"})));

    agent_results(topology, config, guest);
    std::optional<DemoRdma> rdma_part;
    if (rdma) {
      check_second_guest(topology, config, config.guests[1]);
      rdma_part.emplace(host, guests, requesters.front(), responders);
      rdma_part->run([this](const std::string& what) { step("{}", what); });
      checks_.insert(checks_.end(), rdma_part->checks().begin(), rdma_part->checks().end());
    }
    host.platform().settle();

    step("Shutting down");
    guests.stop();
    print_tables(rdma_part ? &*rdma_part : nullptr);
    const Picoseconds simulated = host.platform().now();
    host.close();
    const std::uint64_t hash = host.trace()->hash();
    const std::uint64_t tlps = host.trace()->count();
    const auto failed = static_cast<std::size_t>(
        std::count_if(checks_.begin(), checks_.end(), [](const Check& check) { return !check.passed; }));
    if (options_.json) {
      nlohmann::json all{{"checks", nlohmann::json::array()},
                         {"results", results_},
                         {"trace_hash", fmt::format("{:016x}", hash)},
                         {"tlps_on_links", tlps},
                         {"wall_seconds", seconds()},
                         {"boot_seconds", boot_seconds}};
      if (rdma_part) {
        all["rdma"] = rdma_part->json();
      }
      for (const Check& check : checks_) {
        all["checks"].push_back({{"passed", check.passed}, {"kind", check.kind}, {"what", check.what}});
      }
      fmt::print("{}\n", all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    } else {
      fmt::print("\n{} of {} checks passed. {} TLPs on links (trace hash {:016x}), {:.3f} s simulated.\n",
                 checks_.size() - failed, checks_.size(), tlps, hash, simulated.seconds());
      fmt::print("Wall time {:.1f} s, of which {:.1f} s until the guest was up.\n", seconds(), boot_seconds);
    }
    return failed == 0 ? 0 : 1;
  }

 private:
  static std::size_t count(const models::Topology& topology, models::EndpointKind kind) {
    return static_cast<std::size_t>(std::count_if(topology.endpoints.begin(), topology.endpoints.end(),
                                                  [&](const auto& endpoint) { return endpoint.kind == kind; }));
  }

  template <class... Arguments>
  void step(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    if (!options_.json) {
      fmt::print("[{:5.1f} s] {}\n", seconds(), fmt::format(format, std::forward<Arguments>(arguments)...));
      flush_output();
    }
  }

  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  static std::string first_line(const std::string& output) { return output.substr(0, output.find('\n')); }

  std::string exec(std::vector<std::string> command) { return guests_->exec(0, std::move(command)); }

  static std::vector<std::string> rnics_of(const models::Topology& topology, const models::GuestConfig& guest) {
    std::vector<std::string> names;
    for (const models::Topology::Endpoint& endpoint : topology.endpoints) {
      if (endpoint.kind == models::EndpointKind::rnic &&
          std::find(guest.devices.begin(), guest.devices.end(), endpoint.name) != guest.devices.end()) {
        names.push_back(endpoint.name);
      }
    }
    return names;
  }

  void check_second_guest(const models::Topology& topology, const models::ServerConfig& config,
                          const models::GuestConfig& guest) {
    const auto results = guest_results(guests_->exec(1, {"/usr/bin/orrery-guest-demo", "topology"}));
    for (const Check& check : check_topology(results, topology, config, guest)) {
      checks_.push_back(check);
    }
  }

  void keep(const std::vector<nlohmann::json>& results, const char* phase) {
    for (nlohmann::json result : results) {
      if (text(result, "test") == "summary") {
        continue;
      }
      result["phase"] = phase;
      const bool passed = text(result, "status") == "pass";
      const bool skipped = text(result, "status") == "skip";
      if (text(result, "test") != "topology" && !skipped) {
        checks_.push_back(
            {passed, description(text(result, "test")),
             fmt::format("{} {}: {}", text(result, "test"), text(result, "name"), text(result, "detail"))});
      }
      results_.push_back(std::move(result));
    }
  }

  static std::string description(const std::string& test) {
    static const std::map<std::string, std::string> descriptions{
        {"memory", "GPU memories written and read back through their BARs (guest)"},
        {"copy", "engine copies host-GPU and GPU-GPU, compared by the guest's CPU"},
        {"allreduce", "ring AllReduce: sums by the guest's CPU, byte counters of every port"},
        {"interrupt", "GPUs that complete by MSI-X, masking included (guest)"},
        {"unmap", "page unmapped under a running DMA: clean engine error, no stray byte (guest)"},
        {"rnic", "RNIC self-tests: posted writes counted, host and GPU memory by DMA (guest)"},
    };
    const auto at = descriptions.find(test);
    return at == descriptions.end() ? test : at->second;
  }

  void set_acs(std::uint16_t control) {
    for (std::size_t i = 0; i < host_->platform().topology().switches.size(); ++i) {
      host_->platform().set_acs(i, control);
    }
  }

  void agent_results(const models::Topology& topology, const models::ServerConfig& config,
                     const models::GuestConfig& guest) {
    step("What the guest sees (lspci -t -nn):");
    const std::string tree = exec({"lspci", "-t", "-nn"});
    if (!options_.json) {
      fmt::print("{}", tree);
    }
    const std::string program = "/usr/bin/orrery-guest-demo";
    step("The guest enumerates, then drives the engines; ACS off: peers below one switch reach each other directly");
    set_acs(acs_direct);
    const auto first = guest_results(exec({program, "--size", options_.size, "all"}));
    keep(first, "direct");
    if (first.empty()) {
      throw Error("orrery-guest-demo reported nothing", (*guests_)[0].qemu().console().excerpt());
    }
    for (const Check& check : check_topology(first, topology, config, guest)) {
      checks_.push_back(check);
    }
    step("The same copies with ACS {:#x}: requests between peers go through the root complex", acs_redirect);
    set_acs(acs_redirect);
    keep(guest_results(exec({program, "--size", options_.size, "copy"})), "redirected");
    check_routes();
    for (std::size_t i = 0; i < host_->platform().topology().switches.size(); ++i) {
      host_->platform().set_acs(i, config.switch_acs(static_cast<unsigned>(i)));
    }
  }

  // A direct copy and the same copy redirected: only the second may cross the root complex, and it takes longer.
  void check_routes() {
    for (const nlohmann::json& direct : results_) {
      if (text(direct, "test") != "copy" || text(direct, "phase") != "direct" || text(direct, "common_port").empty()) {
        continue;
      }
      for (const nlohmann::json& redirected : results_) {
        if (text(redirected, "phase") == "redirected" && text(redirected, "name") == text(direct, "name")) {
          const bool through = crosses_root_complex(redirected);
          const bool around = crosses_root_complex(direct);
          checks_.push_back(
              {through && !around, "peer copies: direct with ACS off, through the root complex with ACS on",
               fmt::format("{}: {} the root complex with ACS off, {} it with ACS {:#x}", text(direct, "name"),
                           around ? "crosses" : "stays below", through ? "crosses" : "stays below", acs_redirect)});
        }
      }
    }
  }

  [[nodiscard]] bool crosses_root_complex(const nlohmann::json& result) const {
    const auto profile = result.find("profile");
    if (profile == result.end()) {
      return false;
    }
    for (const char* key : {"read_hops", "write_hops"}) {
      if (hop_summary(profile->value(key, nlohmann::json::array()), host_->platform().simulation().names)
              .find("root_complex") != std::string::npos) {
        // The engine's other operand may be host memory; a peer copy has none.
        return true;
      }
    }
    return false;
  }

  // Host copies of the first and the last GPU, every peer copy (with redirection only those): the others are like them.
  [[nodiscard]] bool worth_a_row(const nlohmann::json& result) const {
    const bool peer = !text(result, "peer_bdf").empty();
    if (text(result, "phase") == "redirected") {
      return peer && !text(result, "common_port").empty();
    }
    std::string first;
    std::string last;
    for (const nlohmann::json& each : results_) {
      if (text(each, "test") == "copy" && text(each, "peer_bdf").empty()) {
        first = first.empty() ? text(each, "engine_bdf") : first;
        last = text(each, "engine_bdf");
      }
    }
    return peer || text(result, "engine_bdf") == first || text(result, "engine_bdf") == last;
  }

  void print_copies() {
    fmt::print(
        "\nTransfers, as the engines timed them. Latency: of the last TLP of many in flight, request to completion.\n");
    fmt::print("  {:<16} {:<5} {:>8} {:>12} {:>10}  {}\n", "copy", "ACS", "bytes", "bandwidth", "latency",
               "by hop, there and back, ns");
    for (const nlohmann::json& result : results_) {
      const auto profile = result.find("profile");
      if (text(result, "test") != "copy" || profile == result.end() || !worth_a_row(result)) {
        continue;
      }
      const std::uint64_t span = number(*profile, "end_ps") - number(*profile, "start_ps");
      const std::uint64_t bytes = number(*profile, "bytes");
      nlohmann::json hops = profile->value("write_hops", nlohmann::json::array());
      if (hops.empty()) {
        hops = profile->value("read_hops", nlohmann::json::array());
      }
      fmt::print("  {:<16} {:<5} {:>8} {:>7.2f} GB/s {:>7.1f} ns  {}\n", text(result, "name"),
                 text(result, "phase") == "direct" ? "off" : "0x1d", bytes_text(bytes),
                 span == 0 ? 0.0 : static_cast<double>(bytes) * 1e3 / static_cast<double>(span),
                 static_cast<double>(hop_total(hops)) / 1e3, hop_summary(hops, host_->platform().simulation().names));
    }
  }

  void print_allreduce() {
    for (const nlohmann::json& result : results_) {
      const auto gpus = result.find("gpus");
      if (text(result, "test") != "allreduce" || gpus == result.end() || !gpus->is_array()) {
        continue;
      }
      std::uint64_t busiest = 0;
      for (const nlohmann::json& gpu : *gpus) {
        busiest = std::max(busiest, gpu.is_object() ? number(gpu, "busy_ps") : 0);
      }
      const std::uint64_t moved = number(result, "expected_data_bytes");
      fmt::print(
          "  ring AllReduce: {} GPUs, {} each; every GPU sent {} bytes = 2(n-1)/n S in {:.1f} us of engine time "
          "({:.2f} GB/s)\n",
          gpus->size(), bytes_text(number(result, "bytes")), moved, static_cast<double>(busiest) / 1e6,
          busiest == 0 ? 0.0 : static_cast<double>(moved) * 1e3 / static_cast<double>(busiest));
    }
  }

  // `rdma`: null if there was none.
  void print_tables(const DemoRdma* rdma) {
    if (options_.json) {
      return;
    }
    print_copies();
    print_allreduce();
    if (rdma != nullptr) {
      rdma->print();
    }
    fmt::print("\nWhat guest and host verified\n");
    std::vector<std::pair<std::string, std::pair<std::size_t, std::size_t>>> groups;  // passed, all; by kind
    for (const Check& check : checks_) {
      const auto group =
          std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == check.kind; });
      auto& counts = group == groups.end()
                         ? groups.emplace_back(check.kind, std::pair<std::size_t, std::size_t>{}).second
                         : group->second;
      counts.first += check.passed ? 1 : 0;
      ++counts.second;
    }
    for (const auto& [kind, counts] : groups) {
      fmt::print("  {:>2} of {:>2}  {}\n", counts.first, counts.second, kind);
    }
    for (const Check& check : checks_) {
      if (!check.passed) {
        fmt::print("  FAILED  {}\n", check.what);
      }
    }
  }

  const DemoCommandOptions& options_;
  Clock::time_point begin_;
  ServerHost* host_ = nullptr;
  DemoGuests* guests_ = nullptr;
  bool interrupted_ = false;
  std::vector<nlohmann::json> results_;
  std::vector<Check> checks_;
};

}  // namespace

void add_demo_command(CLI::App& app) {
  auto options = std::make_shared<DemoCommandOptions>();
  CLI::App* command = app.add_subcommand(
      "demo", "Boot stock Debian guests on the emulated server and let them use and verify what they see");
  add_config_options(*command, options->config);
  add_guest_options(*command, options->guest);
  command->add_option("--size", options->size, "Bytes of each copy and of each GPU's AllReduce data (K, M)");
  command->add_flag("--json", options->json, "Print results and checks as JSON");
  command->callback([options] {
    Demo demo(*options);
    if (const int status = demo.run(); status != 0) {
      throw ExitStatus{status};
    }
  });
}

}  // namespace orrery::cli
