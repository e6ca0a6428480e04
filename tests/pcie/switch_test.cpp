// Routing and ACS through the real switch: PCIe Base 6.3 §1.3.3, §2.2.7.1, §6.12.1.1, §6.12.3, §7.3.3.
#include "pcie/switch.h"

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "common/error.h"
#include "tests/pcie/fabric.h"

namespace orrery::pcie::switch_test {
namespace {

using testing::Collector;

constexpr std::uint64_t window_bytes = 0x10000;
constexpr std::uint64_t window(unsigned port) {
  return 0x40'0000'0000 + port * window_bytes;
}
constexpr Bdf device(unsigned port) {
  return Bdf::of(10 + port, 0, 0);
}

// A switch with three downstream ports; a collector stands at every egress.
class SwitchTest : public ::testing::Test {
 protected:
  static constexpr unsigned ports = 3;
  SwitchTest() : sw_(simulation_, "switch", {ports, {105'000}}) {
    sw_.set_bdf(Bdf::of(8, 0, 0));
    sw_.set_bus_range(0, {9, 13});
    for (unsigned p = 0; p <= ports; ++p) {
      out_.push_back(std::make_unique<Collector>(simulation_));
      sw_.connect(p, *out_[p]);
      if (p != 0) {
        sw_.set_bus_range(p, {10 + p, 10 + p});
        EXPECT_TRUE(sw_.add_window(p, window(p), window_bytes));
      }
    }
  }
  TlpPtr make(TlpType type, std::uint64_t address, unsigned from_port) {
    TlpPtr tlp = simulation_.tlps.make();
    tlp->type = type;
    tlp->address = address;
    tlp->requester = device(from_port);
    tlp->tag = 33;
    if (carries_payload(type)) {
      tlp->store(std::vector<std::byte>(4, std::byte{1}));
    } else {
      tlp->length = 4;
    }
    return tlp;
  }
  // Sends it in by `port`; which port it came out of, or -1.
  int send(unsigned port, TlpPtr tlp) {
    for (const auto& out : out_) {
      out->tlps.clear();
    }
    sw_.ingress(port).receive(std::move(tlp), {});
    int result = -1;
    for (unsigned p = 0; p <= ports; ++p) {
      if (!out_[p]->tlps.empty()) {
        EXPECT_EQ(result, -1) << "came out twice";
        EXPECT_EQ(out_[p]->tlps.size(), 1U);
        result = static_cast<int>(p);
      }
    }
    return result;
  }
  const Tlp& at(int port) { return *out_[static_cast<unsigned>(port)]->tlps.front(); }
  void acs(std::uint16_t value) {
    for (unsigned p = 1; p <= ports; ++p) {
      sw_.set_acs(p, AcsControl::from_register(value));
    }
  }
  Simulation simulation_;
  Switch sw_;
  std::vector<std::unique_ptr<Collector>> out_;
};

TEST_F(SwitchTest, ImpossiblePortNumbersAreRefused) {
  Simulation simulation;
  EXPECT_THROW(Switch(simulation, "none", {0, {}}), Error);
  EXPECT_THROW(Switch(simulation, "many", {33, {}}), Error);
}

TEST_F(SwitchTest, MemoryIsRoutedByAddressDownstream) {
  for (unsigned p = 1; p <= ports; ++p) {
    for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{1}, window_bytes - 1}) {
      EXPECT_EQ(send(0, make(TlpType::MWr, window(p) + offset, 0)), static_cast<int>(p));
      EXPECT_EQ(send(0, make(TlpType::MRd, window(p) + offset, 0)), static_cast<int>(p));
    }
  }
}

TEST_F(SwitchTest, NobodyClaimsItDownstream) {
  // Just below the first and just above the last window.
  for (const std::uint64_t address :
       {window(1) - 1, window(ports) + window_bytes, std::uint64_t{0}, ~std::uint64_t{0}}) {
    EXPECT_EQ(send(0, make(TlpType::MWr, address, 0)), -1) << "posted: dropped";
    ASSERT_EQ(send(0, make(TlpType::MRd, address, 0)), 0);
    EXPECT_EQ(at(0).type, TlpType::Cpl);
    EXPECT_EQ(at(0).status, CompletionStatus::unsupported_request);
    EXPECT_EQ(at(0).completer, Bdf::of(8, 0, 0));
    EXPECT_EQ(at(0).tag, 33);
  }
  EXPECT_EQ(sw_.counters().unsupported, 8U);
  EXPECT_EQ(sw_.counters().acs_violations, 0U);
}

TEST_F(SwitchTest, CompletionsAndConfigurationAreRoutedById) {
  for (unsigned p = 1; p <= ports; ++p) {
    EXPECT_EQ(send(0, make(TlpType::CplD, 0, p)), static_cast<int>(p));
    for (const TlpType type : {TlpType::CfgRd1, TlpType::CfgWr1}) {
      TlpPtr config = make(type, 0x10, 0);
      config->completer = device(p);
      ASSERT_EQ(send(0, std::move(config)), static_cast<int>(p));
      // On the bus right below the port a type 1 request becomes type 0.
      EXPECT_EQ(at(static_cast<int>(p)).type, type == TlpType::CfgRd1 ? TlpType::CfgRd0 : TlpType::CfgWr0);
    }
  }
  EXPECT_EQ(send(0, make(TlpType::CplD, 0, 40)), -1) << "a completion for nobody is dropped";
  TlpPtr config = make(TlpType::CfgRd1, 0, 0);
  config->completer = Bdf::of(9, 7, 0);  // the internal bus: no such port
  ASSERT_EQ(send(0, std::move(config)), 0);
  EXPECT_EQ(at(0).status, CompletionStatus::unsupported_request);
}

TEST_F(SwitchTest, TypeOneStaysTypeOneForABusFurtherBelow) {
  sw_.set_bus_range(2, {12, 20});
  TlpPtr config = make(TlpType::CfgRd1, 0, 0);
  config->completer = Bdf::of(15, 0, 0);
  ASSERT_EQ(send(0, std::move(config)), 2);
  EXPECT_EQ(at(2).type, TlpType::CfgRd1);
  // Bus 13 was given to port 2 last; taking the range back leaves none behind.
  sw_.set_bus_range(2, {12, 12});
  TlpPtr gone = make(TlpType::CfgRd1, 0, 0);
  gone->completer = Bdf::of(15, 0, 0);
  ASSERT_EQ(send(0, std::move(gone)), 0);
  EXPECT_EQ(at(0).status, CompletionStatus::unsupported_request);
}

TEST_F(SwitchTest, ConfigurationNeverTravelsUpstream) {
  TlpPtr config = make(TlpType::CfgRd1, 0, 1);
  config->completer = device(2);
  ASSERT_EQ(send(1, std::move(config)), 1) << "answered where it came from";
  EXPECT_EQ(at(1).type, TlpType::Cpl);
  EXPECT_EQ(at(1).status, CompletionStatus::unsupported_request);
}

TEST_F(SwitchTest, MessagesGoUpOrByIdDown) {
  EXPECT_EQ(send(2, make(TlpType::Msg, 0, 2)), 0);
  TlpPtr message = make(TlpType::MsgD, 0, 0);
  message->completer = device(3);
  EXPECT_EQ(send(0, std::move(message)), 3);
  EXPECT_EQ(sw_.counters().upstream, 1U);
}

TEST_F(SwitchTest, ForeignAddressesGoUpstream) {
  acs(0x1d);
  EXPECT_EQ(send(1, make(TlpType::MWr, 0x1000, 1)), 0);
  EXPECT_EQ(send(1, make(TlpType::MRd, window(3) + window_bytes, 1)), 0);
  EXPECT_EQ(send(1, make(TlpType::CplD, 0, 0)), 0);
  EXPECT_EQ(sw_.counters().upstream, 3U);
  EXPECT_EQ(sw_.counters().redirected, 0U) << "they were bound there anyway";
}

// Rows 4 to 7 of the table; AT of the request.
TEST_F(SwitchTest, AcsDecidesAboutPeers) {
  struct Row {
    std::uint16_t control;
    AddressType at;
    int out;  // for a request of port 1 to port 2
  };
  constexpr AddressType at00 = AddressType::untranslated;
  constexpr AddressType at01 = AddressType::translation_request;
  constexpr AddressType at10 = AddressType::translated;
  const Row rows[] = {
      {0x00, at00, 2}, {0x00, at01, 2},  {0x00, at10, 2},   // no ACS: straight
      {0x1d, at00, 0}, {0x1d, at01, 0},  {0x1d, at10, 0},   // Linux' default redirects everything
      {0x5d, at00, 0}, {0x5d, at01, 0},  {0x5d, at10, 2},   // direct translated
      {0x5f, at00, 0}, {0x5f, at01, -1}, {0x5f, at10, -1},  // translation blocking takes precedence
  };
  for (const Row& row : rows) {
    acs(row.control);
    const SwitchCounters before = sw_.counters();
    TlpPtr tlp = make(TlpType::MWr, window(2) + 8, 1);
    tlp->at = row.at;
    EXPECT_EQ(send(1, std::move(tlp)), row.out) << std::hex << row.control << " AT " << static_cast<int>(row.at);
    EXPECT_EQ(sw_.counters().peer_to_peer - before.peer_to_peer, row.out == 2 ? 1U : 0U);
    EXPECT_EQ(sw_.counters().redirected - before.redirected, row.out == 0 ? 1U : 0U);
    EXPECT_EQ(sw_.counters().acs_violations - before.acs_violations, row.out == -1 ? 1U : 0U);
  }
}

TEST_F(SwitchTest, ViolationsAnswerReadsWithCompleterAbort) {
  acs(0x5f);
  TlpPtr read = make(TlpType::MRd, window(2), 1);
  read->at = AddressType::translated;
  ASSERT_EQ(send(1, std::move(read)), 1);
  EXPECT_EQ(at(1).type, TlpType::Cpl);
  EXPECT_EQ(at(1).status, CompletionStatus::completer_abort);
  EXPECT_EQ(at(1).requester, device(1));
  EXPECT_EQ(at(1).byte_count, 4U);
  EXPECT_EQ(sw_.counters().acs_violations, 1U);
}

// E, R, vector bit: 0,0,x direct; 0,1,x upstream; 1,0,1 violation; 1,0,0 direct; 1,1,1 upstream; 1,1,0 direct.
TEST_F(SwitchTest, EgressControl) {
  constexpr std::uint16_t redirect = 1U << 2;
  constexpr std::uint16_t egress = 1U << 5;
  struct Row {
    std::uint16_t control;
    bool blocked;
    int out;
  };
  const Row rows[] = {{0, true, 2},       {redirect, true, 0},          {egress, true, -1},
                      {egress, false, 2}, {egress | redirect, true, 0}, {egress | redirect, false, 2}};
  for (const Row& row : rows) {
    acs(row.control);
    sw_.set_egress_vector(1, row.blocked ? 1U << 2 : 1U << 3);  // the bit of another port must not matter
    EXPECT_EQ(send(1, make(TlpType::MWr, window(2), 1)), row.out) << row.control << " " << row.blocked;
  }
  acs(egress);
  sw_.set_egress_vector(1, 1U << 2);
  ASSERT_EQ(send(1, make(TlpType::MRd, window(2), 1)), 1);
  EXPECT_EQ(at(1).status, CompletionStatus::completer_abort);
  EXPECT_EQ(send(3, make(TlpType::MRd, window(2), 3)), 2) << "the vector belongs to one ingress port";
}

TEST_F(SwitchTest, SourceValidation) {
  acs(0x1);
  EXPECT_EQ(send(1, make(TlpType::MWr, 0x1000, 2)), -1);  // port 1, but with port 2's requester ID
  ASSERT_EQ(send(1, make(TlpType::MRd, 0x1000, 1)), 0);
  EXPECT_EQ(send(1, make(TlpType::Msg, 0, 2)), -1);
  EXPECT_EQ(send(1, make(TlpType::CplD, 0, 0)), 0) << "completions carry the other side's ID";
  EXPECT_EQ(sw_.counters().acs_violations, 2U);
}

TEST_F(SwitchTest, OwnEgressPort) {
  acs(0x10);  // upstream forwarding
  EXPECT_EQ(send(2, make(TlpType::MWr, window(2), 2)), 0);
  EXPECT_EQ(sw_.counters().redirected, 1U);
  acs(0x0);
  EXPECT_EQ(send(2, make(TlpType::MWr, window(2), 2)), -1);
  ASSERT_EQ(send(2, make(TlpType::MRd, window(2), 2)), 2);
  EXPECT_EQ(at(2).status, CompletionStatus::unsupported_request);
}

// Row C: upstream only with CR = 1 and RO = 0, whatever the controls of requests say.
TEST_F(SwitchTest, CompletionRedirect) {
  for (const std::uint16_t others : {0x00, 0x77}) {
    for (const bool redirect : {false, true}) {
      for (const bool relaxed : {false, true}) {
        acs(static_cast<std::uint16_t>((others & ~0x8) | (redirect ? 0x8 : 0)));
        sw_.set_egress_vector(1, ~std::uint64_t{0});
        TlpPtr completion = make(TlpType::CplD, 0, 2);
        completion->completer = device(1);
        completion->attributes.relaxed_ordering = relaxed;
        EXPECT_EQ(send(1, std::move(completion)), redirect && !relaxed ? 0 : 2);
      }
    }
  }
}

TEST_F(SwitchTest, WhatTravelsDownstreamIsNeverRedirected) {
  for (std::uint32_t control = 0; control < 0x80; ++control) {
    acs(static_cast<std::uint16_t>(control));
    for (unsigned p = 0; p <= ports; ++p) {
      sw_.set_egress_vector(p, ~std::uint64_t{0});
    }
    TlpPtr write = make(TlpType::MWr, window(2), 1);  // redirected by the root complex: a peer's ID
    write->at = AddressType::translated;
    ASSERT_EQ(send(0, std::move(write)), 2);
    ASSERT_EQ(send(0, make(TlpType::CplD, 0, 1)), 1);
  }
  EXPECT_EQ(sw_.counters().redirected, 0U);
}

TEST_F(SwitchTest, AnEmptySlotAnswersTheOneWhoAsked) {
  Simulation simulation;
  Switch sw(simulation, "switch", {2, {}});
  Collector up(simulation);
  Collector one(simulation);
  sw.connect(0, up);
  sw.connect(1, one);
  sw.set_bus_range(1, {11, 11});
  sw.set_bus_range(2, {12, 12});
  sw.add_window(2, window(2), window_bytes);
  const auto read = [&] {
    TlpPtr tlp = simulation.tlps.make();
    tlp->address = window(2);
    tlp->length = 4;
    tlp->requester = device(1);
    return tlp;
  };
  sw.ingress(1).receive(read(), {});  // a peer
  ASSERT_EQ(one.tlps.size(), 1U);
  EXPECT_EQ(one.tlps[0]->status, CompletionStatus::unsupported_request);
  sw.ingress(0).receive(read(), {});  // from above
  ASSERT_EQ(up.tlps.size(), 1U);
  EXPECT_EQ(up.tlps[0]->status, CompletionStatus::unsupported_request);
  TlpPtr config = simulation.tlps.make();
  config->type = TlpType::CfgRd1;
  config->completer = device(2);
  sw.ingress(0).receive(std::move(config), {});
  ASSERT_EQ(up.tlps.size(), 2U);
  EXPECT_EQ(up.tlps[1]->status, CompletionStatus::unsupported_request);
  EXPECT_EQ(sw.counters().unsupported, 3U);
  up.tlps.clear();
  one.tlps.clear();
  EXPECT_EQ(simulation.tlps.outstanding(), 0U);
}

TEST_F(SwitchTest, OverlappingWindowsAreRefused) {
  EXPECT_FALSE(sw_.add_window(1, window(2) + 0x100, 0x100));
  EXPECT_FALSE(sw_.add_window(1, window(1) - 1, 2));
  EXPECT_FALSE(sw_.add_window(1, 0x1000, 0));
  EXPECT_FALSE(sw_.add_window(1, ~std::uint64_t{0} - 10, 12));
  EXPECT_TRUE(sw_.add_window(1, ~std::uint64_t{0} - 10, 11));
  EXPECT_EQ(send(0, make(TlpType::MWr, ~std::uint64_t{0}, 0)), 1);
  sw_.clear_windows();
  EXPECT_EQ(send(0, make(TlpType::MWr, window(1), 0)), -1);
}

// ---- Bursts -----------------------------------------------------------------------------------------------

TEST_F(SwitchTest, ABurstCountsAsItsTlps) {
  const std::vector<std::byte> bytes(16 * 256);
  const auto burst = [&](TlpType type, std::uint64_t address, AddressType at) {
    TlpPtr tlp = simulation_.tlps.make();
    tlp->type = type;
    tlp->requester = device(1);
    tlp->address = address;
    tlp->at = at;
    if (type == TlpType::MWr) {
      tlp->borrow(bytes);
    } else {
      tlp->length = static_cast<std::uint32_t>(bytes.size());
    }
    tlp->unit = 256;
    tlp->count = 16;
    return tlp;
  };
  acs(0x5d);
  EXPECT_EQ(send(1, burst(TlpType::MWr, window(2), AddressType::translated)), 2);
  EXPECT_EQ(sw_.counters().peer_to_peer, 16U);
  EXPECT_EQ(send(1, burst(TlpType::MWr, window(2), AddressType::untranslated)), 0);
  EXPECT_EQ(sw_.counters().redirected, 16U);
  EXPECT_EQ(sw_.counters().upstream, 16U);
  acs(0x5f);
  ASSERT_EQ(send(1, burst(TlpType::MRd, window(2), AddressType::translated)), 1);
  EXPECT_EQ(sw_.counters().acs_violations, 16U);
  EXPECT_EQ(at(1).count, 16U) << "as many completions as requests";
  EXPECT_EQ(at(1).bytes_on_wire(framing_bytes_non_flit), 16U * 20);
}

// A burst over the border of two windows: each of its TLPs goes its own way.
TEST_F(SwitchTest, ABurstOverWindowsIsRoutedTlpByTlp) {
  acs(0);
  std::vector<std::byte> bytes(1024);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(i / 4);
  }
  for (const TlpType type : {TlpType::MWr, TlpType::MRd}) {
    for (const auto& out : out_) {
      out->tlps.clear();
    }
    TlpPtr tlp = simulation_.tlps.make();
    tlp->type = type;
    tlp->requester = device(1);
    tlp->address = window(3) - 512 + 16;  // port 2's window, then port 3's
    type == TlpType::MWr ? tlp->borrow(bytes) : static_cast<void>(tlp->length = 1024);
    tlp->unit = 256;
    tlp->count = 5;
    sw_.ingress(1).receive(std::move(tlp), {});
    ASSERT_EQ(out_[2]->tlps.size(), 2U);
    ASSERT_EQ(out_[3]->tlps.size(), 3U);
    std::uint64_t address = window(3) - 512 + 16;
    std::uint32_t done = 0;
    for (const unsigned port : {2U, 3U}) {
      for (const TlpPtr& part : out_[port]->tlps) {
        EXPECT_EQ(part->address, address);
        EXPECT_EQ(part->count, 1U);
        if (type == TlpType::MWr) {
          EXPECT_EQ(part->data, bytes.data() + done);
        } else {
          EXPECT_EQ(part->byte_count, 1024 - done - part->length);
        }
        address += part->length;
        done += part->length;
      }
    }
    EXPECT_EQ(done, 1024U);
  }
}

TEST_F(SwitchTest, TimedLatencyIsChargedOnceAndAnnotated) {
  simulation_.timed = true;
  sw_.ingress(1).receive(make(TlpType::MWr, 0x1000, 1), Picoseconds{7});
  ASSERT_EQ(out_[0]->tlps.size(), 1U);
  EXPECT_EQ(out_[0]->times[0], Picoseconds{105'007});
  EXPECT_EQ(out_[0]->tlps[0]->latency.total(), Picoseconds{105'000});
  EXPECT_EQ(out_[0]->tlps[0]->latency.hops()[0].component, sw_.id());
  // A completion of the switch's own continues the latency of the request.
  sw_.ingress(2).receive(make(TlpType::MRd, window(2), 2), {});
  ASSERT_EQ(out_[2]->tlps.size(), 1U);
  EXPECT_EQ(out_[2]->tlps[0]->latency.total(), Picoseconds{105'000});
  EXPECT_EQ(out_[2]->times[0], Picoseconds{105'000});
}

}  // namespace
}  // namespace orrery::pcie::switch_test
