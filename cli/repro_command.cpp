#include "cli/repro_command.h"

#include <cmath>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/config_options.h"
#include "common/text.h"
#include "studies/fig13.h"
#include "systemc_models/server/platform.h"

namespace orrery::cli {

namespace {

using studies::Fig13Point;

// Within this of the figure, unless the point was calibrated by.
constexpr double tolerance = 0.10;

std::string size_text(std::uint64_t bytes) {
  if (bytes >= 1U << 20) {
    return fmt::format("{} MiB", bytes >> 20);
  }
  return bytes >= 1024 ? fmt::format("{} KiB", bytes >> 10) : fmt::format("{} B", bytes);
}

nlohmann::json points_json(const std::vector<Fig13Point>& points) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Fig13Point& point : points) {
    rows.push_back({{"bytes", point.bytes},
                    {"paper", point.paper},
                    {"ours", point.ours},
                    {"deviation", point.deviation()},
                    {"calibrated", point.calibrated}});
  }
  return rows;
}

void print_points(const char* title, const std::vector<Fig13Point>& points) {
  fmt::print("\n{}\n  {:>8} {:>9} {:>9} {:>8}\n", title, "message", "paper", "ours", "");
  for (const Fig13Point& point : points) {
    fmt::print("  {:>8} {:>9.2f} {:>9.2f} {:>+7.1f}%  {}\n", size_text(point.bytes), point.paper, point.ours,
               100 * point.deviation(), point.calibrated ? "calibrated by" : "predicted");
  }
}

bool all_near(const std::vector<Fig13Point>& points) {
  bool near = true;
  for (const Fig13Point& point : points) {
    near = near && std::abs(point.deviation()) <= tolerance;
  }
  return near;
}

void repro_fig13(const ConfigOptions& options, bool json) {
  const models::ServerConfig config = studies::fig13_config(load(options).config);
  models::Platform platform(config);
  const studies::Fig13Result result = studies::run_fig13(platform);
  const bool near = all_near(result.latency) && all_near(result.throughput);
  if (json) {
    fmt::print("{}\n", nlohmann::json{{"figure", "13"},
                                      {"latency_us", points_json(result.latency)},
                                      {"throughput_gbps", points_json(result.throughput)},
                                      {"tolerance", tolerance},
                                      {"within_tolerance", near}}
                           .dump(2));
  } else {
    fmt::print("Stellar (SIGCOMM 2025), figure 13: RDMA WRITE by message size. The paper's numbers are digitised.\n");
    print_points("(a) latency, us: half of a write and its answer", result.latency);
    print_points("(b) throughput, Gb/s of payload, 128 writes under way", result.throughput);
    fmt::print("\nTimes inside the RNIC: rnic.message_ns {:g}, gather_ns {:g}, pipeline_ns {:g}.\n",
               config.rnic.message.nanoseconds(), config.rnic.gather.nanoseconds(), config.rnic.pipeline.nanoseconds());
    fmt::print("{} {:.0f} % of the paper.\n", near ? "All points are within" : "Not all points are within",
               100 * tolerance);
  }
  if (!near) {
    throw ExitStatus{1};
  }
}

}  // namespace

void add_repro_command(CLI::App& app) {
  struct Options {
    ConfigOptions config;
    std::string figure;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("repro", "Repeat a published figure on the emulated server, and compare");
  add_config_options(*command, options->config);
  command->add_option("figure", options->figure, "Which: fig13")->required()->check(CLI::IsMember({"fig13"}));
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(
      "fig13  Stellar, SIGCOMM 2025: latency and throughput of RDMA WRITE, 2 B to 8 MiB\n\n"
      "The exit status is 1 if a point is further than 10 % from the figure.");
  command->callback([options] { repro_fig13(options->config, options->json); });
}

}  // namespace orrery::cli
