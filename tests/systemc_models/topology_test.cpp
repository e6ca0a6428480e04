#include "systemc_models/server/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace orrery::models::topology_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Topology with(const std::vector<std::string>& sets) {
  return Topology::from(parse_server_config("", "server.toml", sets));
}

std::string error_of(const std::vector<std::string>& sets, std::string_view text = "") {
  try {
    parse_server_config(text, "server.toml", sets);
    return "";
  } catch (const Error& error) {
    return std::string(error.what()) + " | " + error.remedy();
  }
}

// Bus numbers and bridges as the PCI specification wants them (PCI-to-PCI Bridge Architecture: a bridge's
// subordinate bus is the highest below it, ranges nest, no bus has two parents).
void check_buses(const Topology& t) {
  std::set<unsigned> buses;
  std::set<std::uint16_t> bdfs;
  const auto take_bus = [&](unsigned bus) { EXPECT_TRUE(buses.insert(bus).second) << bus; };
  const auto take_bdf = [&](pcie::Bdf bdf) { EXPECT_TRUE(bdfs.insert(bdf.value).second) << bdf.text(); };
  for (const Topology::Socket& socket : t.sockets) {
    take_bus(socket.root_bus);
    unsigned previous = socket.root_bus;
    for (const std::size_t index : socket.root_ports) {
      const Topology::RootPort& port = t.root_ports[index];
      EXPECT_EQ(port.bdf.bus(), socket.root_bus);
      EXPECT_NE(port.bdf.device(), 0U);  // the host bridge
      EXPECT_EQ(port.secondary_bus, previous + 1);
      EXPECT_GE(port.subordinate_bus, port.secondary_bus);
      EXPECT_LE(port.subordinate_bus, socket.last_bus);
      previous = port.subordinate_bus;
      take_bdf(port.bdf);
      take_bus(port.secondary_bus);
      EXPECT_NE(port.switch_index.has_value(), port.endpoint.has_value());
      if (!port.switch_index) {
        continue;
      }
      const Topology::Switch& node = t.switches[*port.switch_index];
      EXPECT_EQ(node.bdf, pcie::Bdf::of(port.secondary_bus, 0, 0));
      EXPECT_EQ(node.secondary_bus, port.secondary_bus + 1);
      EXPECT_EQ(node.subordinate_bus, port.subordinate_bus);
      take_bdf(node.bdf);
      take_bus(node.secondary_bus);
      for (const Topology::DownstreamPort& down : node.downstream_ports) {
        EXPECT_EQ(down.bdf.bus(), node.secondary_bus);
        EXPECT_EQ(down.bdf.device(), down.slot);
        EXPECT_LE(down.secondary_bus, node.subordinate_bus);
        take_bdf(down.bdf);
        take_bus(down.secondary_bus);
      }
    }
  }
  std::set<std::string> names;
  for (const Topology::Endpoint& e : t.endpoints) {
    take_bdf(e.bdf);
    EXPECT_TRUE(names.insert(e.name).second) << e.name;
    EXPECT_EQ(t.find(e.name), &e);
    if (e.switch_index) {
      EXPECT_EQ(t.endpoints[t.switches[*e.switch_index].downstream_ports[e.port].endpoint].name, e.name);
      EXPECT_EQ(e.bdf.bus(), t.switches[*e.switch_index].downstream_ports[e.port].secondary_bus);
      EXPECT_EQ(e.socket, t.switches[*e.switch_index].socket);
    } else {
      EXPECT_EQ(t.endpoints[*t.root_ports[e.port].endpoint].name, e.name);
      EXPECT_EQ(e.bdf.bus(), t.root_ports[e.port].secondary_bus);
    }
  }
}

TEST(Topology, DefaultIsTheServerOfThePaper) {
  const Topology t = with({});
  check_buses(t);
  EXPECT_EQ(t.sockets.size(), 2U);
  EXPECT_EQ(t.switches.size(), 4U);
  EXPECT_THAT(t.endpoint_names(), ElementsAre("rnic0", "gpu0", "gpu1", "rnic1", "gpu2", "gpu3", "rnic2", "gpu4", "gpu5",
                                              "rnic3", "gpu6", "gpu7"));
  // Worked out by hand: root bus, root port's bus, switch's bus, then one bus a slot.
  EXPECT_EQ(t.find("rnic0")->bdf.text(), "03:00.0");
  EXPECT_EQ(t.find("gpu1")->bdf.text(), "05:00.0");
  EXPECT_EQ(t.find("rnic1")->bdf.text(), "08:00.0");
  EXPECT_EQ(t.find("gpu7")->bdf.text(), "8a:00.0");
  EXPECT_EQ(t.find("gpu4")->slot, "switch2.slot1");
  EXPECT_EQ(t.sockets[t.find("gpu4")->socket].numa_node, 1U);
  EXPECT_EQ(t.root_ports[1].bdf.text(), "00:02.0");
  EXPECT_EQ(t.find("gpu8"), nullptr);
}

TEST(Topology, OtherShapesByConfigurationAlone) {
  for (const std::vector<std::string>& sets : std::vector<std::vector<std::string>>{
           {"topology.switches=1"},
           {"topology.switches=8"},
           {"topology.switches=3"},
           {"topology.sockets=1"},
           {"topology.rnics_per_switch=2"},
           {"topology.rnics_per_switch=0", "topology.gpus_per_switch=32", "topology.switches=2"},
           {"topology.switches=0"},
           {"topology.switches=0", "topology.rnics=0", "topology.gpus=1", "topology.sockets=1"},
           {"topology.switches=0", "topology.rnics=30", "topology.gpus=32"}}) {
    check_buses(with(sets));
  }
  EXPECT_EQ(with({"topology.switches=1"}).endpoints.size(), 3U);
  EXPECT_EQ(with({"topology.switches=8"}).endpoints.size(), 24U);
  EXPECT_EQ(with({"topology.switches=0"}).endpoints.size(), 12U);
  EXPECT_EQ(with({"topology.rnics_per_switch=2"}).endpoint_names()[1], "rnic1");
}

TEST(Topology, SwitchesSpreadOverSockets) {
  const Topology three = with({"topology.switches=3"});
  EXPECT_EQ(three.switches[0].socket, 0U);
  EXPECT_EQ(three.switches[1].socket, 0U);
  EXPECT_EQ(three.switches[2].socket, 1U);
  EXPECT_EQ(with({"topology.switches=1"}).switches[0].socket, 0U);
}

TEST(Topology, RootPortsOnly) {
  const Topology t = with({"topology.switches=0", "topology.rnics=2", "topology.gpus=2"});
  EXPECT_TRUE(t.switches.empty());
  EXPECT_THAT(t.endpoint_names(), ElementsAre("rnic0", "gpu0", "rnic1", "gpu1"));
  EXPECT_EQ(t.find("rnic1")->slot, "socket1.slot0");
  EXPECT_EQ(t.find("gpu0")->bdf.text(), "02:00.0");
}

TEST(Topology, LimitsOfBusesAndDevicesAreTheHardwares) {
  EXPECT_THAT(error_of({"topology.gpus_per_switch=32"}),
              HasSubstr("topology.gpus_per_switch: 1 RNICs and 32 GPUs below one switch"));
  // 4 switches of 31 endpoints: 1 + 4 * (2 + 31) = 133 of 128 buses on each of two sockets.
  EXPECT_THAT(error_of({"topology.switches=8", "topology.gpus_per_switch=30"}),
              HasSubstr("socket 0 needs 133 bus numbers and has 128 of the 256"));
  EXPECT_EQ(error_of({"topology.switches=8", "topology.gpus_per_switch=28"}), "");  // 125
  EXPECT_THAT(error_of({"topology.switches=0", "topology.rnics=33", "topology.gpus=31"}),
              HasSubstr("socket 0 needs 33 root ports | a root bus has 31"));
  EXPECT_THAT(error_of({"topology.switches=0", "topology.sockets=1", "topology.gpus=30"}),
              HasSubstr("or raise topology.sockets to 2"));
  EXPECT_THAT(error_of({"topology.switches=0", "topology.rnics=0", "topology.gpus=0"}),
              HasSubstr("a server without any endpoint"));
  EXPECT_THAT(error_of({"topology.rnics_per_switch=0", "topology.gpus_per_switch=0"}),
              HasSubstr("switch0 has no endpoint"));
}

TEST(Topology, ErrorsNameWhereTheValueWasGiven) {
  EXPECT_THAT(error_of({}, "[topology]\ngpus_per_switch = 32\n"), HasSubstr("server.toml:2: topology.gpus_per_switch"));
  EXPECT_THAT(error_of({}, "\n[switch.override.5]\nacs = 0\n"),
              HasSubstr("server.toml:2: switch.override.5: there is no switch 5 | use a number from 0 to 3"));
  EXPECT_THAT(error_of({}, "[gpu]\nmemory_mib = 128\nbar_mib = 256\n"),
              HasSubstr("server.toml:3: gpu.bar_mib: the BAR has 256 MiB, the memory 128"));
}

TEST(Topology, TraceAndRecordingAreTwoFiles) {
  EXPECT_THAT(error_of({"trace.file=run", "record.file=run"}), HasSubstr("record.file: the same file as trace.file"));
  EXPECT_EQ(error_of({"trace.file=run.trace", "record.file=run.rec"}), "");
  EXPECT_THAT(error_of({"record.file=run.rec", "rnic.personality=mlx5", "rnic.firmware=riscv64"}),
              HasSubstr("record.file: a firmware on a processor of its own can't be replayed"));
  EXPECT_EQ(error_of({"record.file=run.rec", "rnic.personality=mlx5"}), "");
  EXPECT_THAT(error_of({"rnic.firmware_map=my.toml"}), HasSubstr("rnic.firmware_map: Orrery's firmware knows"));
  EXPECT_EQ(error_of({"rnic.firmware_map=my.toml", "rnic.firmware_elf=my.elf"}), "");
}

TEST(Topology, OverridesChangeOneSwitch) {
  const Topology t = with({"switch.override.1.acs=0x5d", "switch.override.1.latency_ns=105"});
  EXPECT_EQ(t.switches[0].acs, 0x5d);
  EXPECT_EQ(t.switches[1].acs, 0x5d);
  EXPECT_EQ(t.switches[1].latency.count, 105'000U);
  EXPECT_EQ(t.switches[2].latency.count, 115'000U);
}

TEST(Topology, EgressVectorsBecomePortNumbers) {
  // From slot 0 to slots 1 and 2; from slot 2 to slot 0; slot 7 doesn't exist.
  const Topology t = with({"switch.override.0.egress=[0x86, 0, 0x1]"});
  EXPECT_EQ(t.switches[0].downstream_ports[0].egress_vector, (1U << 2) | (1U << 3));
  EXPECT_EQ(t.switches[0].downstream_ports[1].egress_vector, 0U);
  EXPECT_EQ(t.switches[0].downstream_ports[2].egress_vector, 1U << 1);
  EXPECT_EQ(t.switches[1].downstream_ports[0].egress_vector, 0U);
}

TEST(Topology, DevicesReplaceAndAdd) {
  const Topology t = with({"device.0.slot=switch0.slot2", "device.0.name=dma", "device.0.model=./libdma.so",
                           "device.1.slot=switch0.slot9", "device.1.name=extra", "device.1.model=gpu",
                           "device.2.slot=socket1.slot4", "device.2.name=nic", "device.2.model=rnic"});
  check_buses(t);
  EXPECT_EQ(t.endpoints.size(), 14U);
  EXPECT_EQ(t.find("gpu1"), nullptr);
  EXPECT_NE(t.find("gpu2"), nullptr);  // the others keep their names
  EXPECT_EQ(t.find("dma")->kind, EndpointKind::plugin);
  EXPECT_EQ(t.find("dma")->bdf.text(), "05:00.0");
  EXPECT_EQ(t.find("extra")->kind, EndpointKind::gpu);
  EXPECT_EQ(t.find("extra")->ordinal, 8U);
  EXPECT_EQ(t.switches[0].downstream_ports[3].bdf.device(), 9U);
  EXPECT_EQ(t.find("nic")->switch_index, std::nullopt);
  EXPECT_EQ(t.root_ports[t.find("nic")->port].bdf.text(), "80:05.0");
}

TEST(Topology, SlotsThatDoNotExistAreRefused) {
  const auto with_slot = [](const std::string& slot) {
    return error_of({"device.0.slot=\"" + slot + "\"", "device.0.model=./x.so"});
  };
  for (const char* bad :
       {"", "switch0", "switch0.slot", "switch.slot1", "switch0.slot1.x", "switch00.slot1", "switch0.slot01",
        "switch0.slot0x1", "switch-1.slot0", "root0.slot0", "switch0.slot99999999999", "Switch0.slot1"}) {
    EXPECT_THAT(with_slot(bad), HasSubstr("device.0.slot")) << bad;
  }
  EXPECT_THAT(with_slot("switch4.slot0"), HasSubstr("there is no switch4 | use switch0 to switch3"));
  EXPECT_THAT(with_slot("switch0.slot32"), HasSubstr("there is no slot 32 | use slot0 to slot31"));
  EXPECT_THAT(with_slot("socket2.slot0"), HasSubstr("there is no socket2"));
  EXPECT_THAT(with_slot("socket0.slot31"), HasSubstr("there is no slot 31 | use slot0 to slot30"));
  EXPECT_THAT(with_slot("socket0.slot1"), HasSubstr("socket0.slot1 holds a switch | use socket0.slot2"));
  EXPECT_THAT(error_of({"topology.switches=0", "device.0.slot=switch0.slot0", "device.0.model=./x.so"}),
              HasSubstr("with topology.switches = 0 slots are \"socketN.slotM\""));
  EXPECT_THAT(error_of({"device.0.name=a", "device.1.name=b"}), HasSubstr("is taken by an earlier [[device]]"));
}

TEST(Topology, NamesAreUnique) {
  EXPECT_THAT(error_of({"device.0.name=gpu0"}), HasSubstr("device.0.name: \"gpu0\" is the name of another endpoint"));
  EXPECT_THAT(error_of({"device.0.name=all"}), HasSubstr("\"all\" cannot be the name"));
  EXPECT_EQ(error_of({"device.0.name=gpu1", "device.0.slot=switch0.slot2"}), "");  // it takes gpu1's place
}

TEST(Topology, ADeviceBelongsToOneGuest) {
  EXPECT_THAT(
      error_of({"guest.0.name=a", "guest.0.devices=[\"gpu0\"]", "guest.1.name=b", "guest.1.devices=[\"gpu0\"]"}),
      HasSubstr("guest.1.devices: \"gpu0\" belongs to guest \"a\" already"));
  EXPECT_THAT(error_of({"guest.0.devices=[\"gpu0\", \"gpu0\"]"}), HasSubstr("belongs to guest \"guest0\" already"));
  EXPECT_THAT(error_of({"guest.0.name=a", "guest.1.name=b"}), HasSubstr("belongs to guest \"a\" already"));
  EXPECT_THAT(error_of({"guest.0.devices=[\"gpu00\"]"}),
              HasSubstr("there is no endpoint \"gpu00\" | did you mean \"gpu0\"?"));
  EXPECT_THAT(error_of({"guest.0.devices=[\"all\", \"gpu0\"]"}), HasSubstr("\"all\" beside other names"));
  EXPECT_THAT(error_of({"guest.0.devices=[\"gpu0\"]", "guest.1.devices=[\"gpu1\"]"}),
              HasSubstr("a second guest \"guest0\""));
}

TEST(Topology, GuestsWithoutNamesGetEverything) {
  const ServerConfig config;
  const std::vector<GuestConfig> guests = guests_of(config, Topology::from(config));
  ASSERT_EQ(guests.size(), 1U);
  EXPECT_EQ(guests[0].devices.size(), 12U);
  const ServerConfig two = parse_server_config("", "x", std::vector<std::string>{"guest.0.devices=[\"gpu0\"]"});
  EXPECT_THAT(guests_of(two, Topology::from(two))[0].devices, ElementsAre("gpu0"));
}

}  // namespace
}  // namespace orrery::models::topology_test
