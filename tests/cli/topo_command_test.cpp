#include "cli/topo_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "systemc_models/server/topology.h"
#include "tests/cli/commands_test.h"
#include "tests/common/temporary_file.h"

namespace orrery::cli::topo_command_test {
namespace {

using orrery::test::TemporaryFile;
using ::testing::HasSubstr;
using ::testing::Not;

test::Outcome topo(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "topo");
  return test::run(add_topo_command, std::move(arguments));
}

models::Topology topology(const std::vector<std::string>& sets) {
  return models::Topology::from(models::parse_server_config("", "x", sets));
}

std::size_t count(const std::string& text, const std::string& piece) {
  std::size_t found = 0;
  for (std::size_t at = text.find(piece); at != std::string::npos; at = text.find(piece, at + 1)) {
    ++found;
  }
  return found;
}

TEST(TopoText, IsATreeWithLinksAndNumbers) {
  EXPECT_EQ(
      topo({"--set", "topology.switches=1", "--set", "topology.sockets=1", "--set", "link.rnic.generation=4"}).out,
      "server0: 1 socket, 1 switch, 3 endpoints\n"
      "socket0: NUMA node 0, root bus 00 (buses 00-ff)\n"
      "└─ 00:01.0 socket0.port0 ─ Gen5 x16 ─ 01:00.0 switch0 (115 ns, ACS 0x5d, buses 02-05)\n"
      "   ├─ 02:00.0 slot0 ─ Gen4 x16 ─ 03:00.0 rnic0\n"
      "   ├─ 02:01.0 slot1 ─ Gen5 x16 ─ 04:00.0 gpu0\n"
      "   └─ 02:02.0 slot2 ─ Gen5 x16 ─ 05:00.0 gpu1\n");
}

TEST(TopoText, ShowsPluginModels) {
  EXPECT_THAT(topo({"--set", "device.0.model=./libdma.so"}).out, HasSubstr("06:00.0 device0 (./libdma.so)"));
}

TEST(TopoJson, HoldsTheWholeTopology) {
  const auto json = nlohmann::json::parse(topo({"--json"}).out);
  EXPECT_EQ(json["sockets"].size(), 2U);
  EXPECT_EQ(json["root_ports"].size(), 4U);
  EXPECT_EQ(json["switches"].size(), 4U);
  ASSERT_EQ(json["endpoints"].size(), 12U);
  EXPECT_EQ(json["endpoints"][1]["name"], "gpu0");
  EXPECT_EQ(json["endpoints"][1]["bdf"], "04:00.0");
  EXPECT_EQ(json["endpoints"][11]["numa_node"], 1);
  EXPECT_EQ(json["switches"][3]["downstream_ports"][2]["child"], "gpu7");
  EXPECT_EQ(json["root_ports"][0]["child"], "switch0");
  // 32 GT/s * 16 lanes * 128/130 / 8.
  EXPECT_NEAR(json["root_ports"][0]["link"]["bytes_per_second"].get<double>(), 63.015e9, 1e6);
  EXPECT_EQ(nlohmann::json::parse(topo({"--format", "json"}).out), json);
}

TEST(TopoSvg, DrawsEveryComponentAndNothingElse) {
  const std::string svg = topology_svg(topology({}));
  for (const char* name : {"socket0", "socket1", "switch0", "switch3"}) {
    EXPECT_EQ(count(svg, std::string(">") + name + "<"), 1U) << name;
  }
  for (const std::string& name : topology({}).endpoint_names()) {
    EXPECT_EQ(count(svg, ">" + name + "<"), 1U) << name;
  }
  EXPECT_EQ(count(svg, "Gen5 x16 · 63.0 GB/s"), 4U);
  for (const char* foreign : {"<script", "href", "@import", "url(", "<image"}) {
    EXPECT_THAT(svg, Not(HasSubstr(foreign)));
  }
}

TEST(TopoSvg, HeadingCountsInEnglish) {
  EXPECT_THAT(topology_svg(topology({"topology.switches=1", "topology.gpus_per_switch=1"})),
              HasSubstr(">server0: 1 RNIC, 1 GPU<"));
}

TEST(TopoSvg, TagsBalanceAndBoxesStayInside) {
  for (const std::vector<std::string>& sets :
       std::vector<std::vector<std::string>>{{},
                                             {"topology.switches=0"},
                                             {"topology.switches=8"},
                                             {"topology.sockets=1", "topology.switches=1"},
                                             {"topology.sockets=1", "topology.switches=1", "server.name=a_long_name"},
                                             {"topology.switches=2", "topology.gpus_per_switch=31"}}) {
    const std::string svg = topology_svg(topology(sets));
    EXPECT_EQ(count(svg, "<text"), count(svg, "</text>"));
    EXPECT_EQ(count(svg, "<svg"), 1U);
    EXPECT_TRUE(svg.ends_with("</svg>\n"));
    std::smatch size;
    ASSERT_TRUE(std::regex_search(svg, size, std::regex("width=\"(\\d+)\" height=\"(\\d+)\"")));
    const int width = std::stoi(size[1]);
    const int height = std::stoi(size[2]);
    const std::regex box("<rect x=\"(\\d+)\" y=\"(\\d+)\" width=\"(\\d+)\" height=\"(\\d+)\"");
    // Characters of the heading's font are 11 to 16 px wide.
    std::smatch heading;
    ASSERT_TRUE(std::regex_search(svg, heading, std::regex("class=\"title\">([^<]*)<")));
    EXPECT_LE(24 + 12 * heading[1].length(), width) << heading[1];
    int boxes = 0;
    for (std::sregex_iterator i(svg.begin(), svg.end(), box), end; i != end; ++i, ++boxes) {
      EXPECT_LE(std::stoi((*i)[1]) + std::stoi((*i)[3]), width);
      EXPECT_LE(std::stoi((*i)[2]) + std::stoi((*i)[4]), height);
    }
    EXPECT_GT(boxes, 3);
  }
}

TEST(TopoCommand, WritesAFile) {
  const TemporaryFile file;
  const test::Outcome outcome = topo({"--format", "svg", "-o", file.path()});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(file.text(), topology_svg(topology({})));
}

TEST(TopoCommand, Errors) {
  EXPECT_EQ(topo({"--format", "png"}).status, 2);
  EXPECT_EQ(topo({"/nonexistent"}).status, 1);
  EXPECT_EQ(topo({"-o", "/nonexistent/x"}).error, "/nonexistent/x: cannot write: No such file or directory");
  EXPECT_EQ(topo({"-o", "/dev/full"}).error, "/dev/full: cannot write: No space left on device");
  EXPECT_EQ(topo({"--set", "topology.switches=99"}).status, 1);
}

}  // namespace
}  // namespace orrery::cli::topo_command_test
