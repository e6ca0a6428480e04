// TLP sizes, byte enables and cuts against PCIe Base 6.3 §2.2; the pool; the latency breakdown.
#include "pcie/tlp.h"

#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace orrery::pcie::tlp_test {
namespace {

TEST(Tlp, HeaderAndWireBytes) {
  TlpPool pool;
  const std::vector<std::byte> payload(256);
  struct Row {
    TlpType type;
    std::uint64_t address;
    std::uint32_t payload;
    unsigned header;
    unsigned wire;  // header, payload, and 8 bytes of framing
  };
  // 3 DW below 4 GiB, for configuration requests and completions; 4 DW above and for messages.
  const Row rows[] = {
      {TlpType::MWr, 0xffff'ffc0, 64, 12, 84},
      {TlpType::MWr, 0x1'0000'0000, 64, 16, 88},
      {TlpType::MWr, 0x1'0000'0000, 256, 16, 280},
      {TlpType::MRd, 0xffff'fffc, 0, 12, 20},
      {TlpType::MRd, 0xffff'ffff'ffff'fffc, 0, 16, 24},
      {TlpType::CfgRd0, 0x40, 0, 12, 20},
      {TlpType::CfgWr1, 0x40, 4, 12, 24},
      {TlpType::Cpl, 0x1'0000'0000, 0, 12, 20},
      {TlpType::CplD, 0x1'0000'0000, 64, 12, 84},
      {TlpType::Msg, 0, 0, 16, 24},
      {TlpType::MsgD, 0, 8, 16, 32},
  };
  for (const Row& row : rows) {
    const TlpPtr tlp = pool.make();
    tlp->type = row.type;
    tlp->address = row.address;
    if (row.payload != 0) {
      tlp->store(std::span(payload).first(row.payload));
    } else {
      tlp->length = 512;  // what a read asks for is not on its wire
    }
    EXPECT_EQ(header_bytes(*tlp), row.header) << name(row.type);
    EXPECT_EQ(tlp->bytes_on_wire(framing_bytes_non_flit), row.wire) << name(row.type);
  }
}

TEST(Tlp, WireBytesOfABurstAreThoseOfItsTlps) {
  TlpPool pool;
  const TlpPtr burst = pool.make();
  const std::vector<std::byte> payload(1000);
  burst->type = TlpType::MWr;
  burst->address = 0x2'0000'00f0;  // 16 bytes to the first multiple of 256, then 256 x 3, then 216
  burst->store(payload);
  burst->unit = 256;
  burst->count = tlps_needed(burst->address, 1000, 256);
  EXPECT_EQ(burst->count, 5U);
  EXPECT_EQ(burst->bytes_on_wire(8), 1000U + 5 * 24);
}

// §2.2.5 says which bytes of the first and last DW are enabled: compare with the set of bytes, one by one.
TEST(Tlp, ByteEnablesForEveryAlignmentAndLength) {
  for (std::uint64_t address = 0x1000; address < 0x1004; ++address) {
    for (std::uint32_t length = 1; length <= 12; ++length) {
      const std::uint64_t first_dw = address / 4;
      const std::uint64_t last_dw = (address + length - 1) / 4;
      unsigned first = 0;
      unsigned last = 0;
      for (std::uint64_t byte = address; byte < address + length; ++byte) {
        if (byte / 4 == first_dw) {
          first |= 1U << (byte % 4);
        } else if (byte / 4 == last_dw) {
          last |= 1U << (byte % 4);
        }
      }
      const ByteEnables be = byte_enables(address, length);
      EXPECT_EQ(be.first, first) << address << " + " << length;
      EXPECT_EQ(be.last, last) << address << " + " << length;  // 0 if there is one DW only
    }
  }
}

TEST(Tlp, TlpsNeededAgainstCountingThem) {
  EXPECT_EQ(tlps_needed(0x1003, 0, 128), 1U);
  std::mt19937_64 random(7);
  for (int i = 0; i < 20'000; ++i) {
    const std::uint32_t unit = 64U << (random() % 7);
    const std::uint64_t address = random() >> (random() % 60);
    const std::uint64_t length = 1 + random() % 20'000;
    std::uint32_t count = 0;
    for (std::uint64_t done = 0; done < length;) {
      done += std::min<std::uint64_t>(unit - (address + done) % unit, length - done);
      ++count;
    }
    ASSERT_EQ(tlps_needed(address, length, unit), count) << address << " " << length << " " << unit;
  }
}

TEST(Tlp, BdfAsLspciPrintsIt) {
  EXPECT_EQ(Bdf::of(0x3f, 0x1f, 7).text(), "3f:1f.7");
  EXPECT_EQ(Bdf::of(0, 0, 0).text(), "00:00.0");
  const Bdf bdf = Bdf::of(0xff, 3, 1);
  EXPECT_EQ(bdf.bus(), 0xffU);
  EXPECT_EQ(bdf.device(), 3U);
  EXPECT_EQ(bdf.function(), 1U);
}

TEST(TlpPool, TlpsComeBackClean) {
  TlpPool pool;
  const std::vector<std::byte> large(100'000, std::byte{1});
  Tlp* first = nullptr;
  {
    TlpPtr tlp = pool.make();
    first = tlp.get();
    tlp->type = TlpType::CplD;
    tlp->at = AddressType::translated;
    tlp->attributes = {true, true, true};
    tlp->traffic_class = 3;
    tlp->poisoned = true;
    tlp->first_be = tlp->last_be = 0;
    tlp->message_code = 9;
    tlp->requester = Bdf::of(1, 2, 3);
    tlp->completer = Bdf::of(4, 5, 6);
    tlp->tag = 77;
    tlp->status = CompletionStatus::completer_abort;
    tlp->address = 1;
    tlp->byte_count = 2;
    tlp->count = 3;
    tlp->unit = 4;
    tlp->created = {5};
    tlp->cookie = 6;
    tlp->latency.add(1).queue = 7;
    tlp->store(large);
    EXPECT_EQ(pool.outstanding(), 1U);
    EXPECT_FALSE(tlp->borrowed());
    EXPECT_EQ(tlp->payload().size(), large.size());
    EXPECT_EQ(tlp->payload().back(), std::byte{1});
  }
  EXPECT_EQ(pool.outstanding(), 0U);
  const TlpPtr again = pool.make();
  EXPECT_EQ(again.get(), first) << "recycled";
  const Tlp fresh_fields{};
  EXPECT_EQ(again->type, fresh_fields.type);
  EXPECT_EQ(again->at, fresh_fields.at);
  EXPECT_EQ(again->attributes, fresh_fields.attributes);
  EXPECT_EQ(again->traffic_class, 0);
  EXPECT_FALSE(again->poisoned);
  EXPECT_EQ(again->first_be, 0xf);
  EXPECT_EQ(again->last_be, 0xf);
  EXPECT_EQ(again->message_code, 0);
  EXPECT_EQ(again->requester, Bdf{});
  EXPECT_EQ(again->completer, Bdf{});
  EXPECT_EQ(again->tag, 0);
  EXPECT_EQ(again->status, CompletionStatus::success);
  EXPECT_EQ(again->address, 0U);
  EXPECT_EQ(again->length, 0U);
  EXPECT_EQ(again->byte_count, 0U);
  EXPECT_EQ(again->count, 1U);
  EXPECT_EQ(again->unit, 0U);
  EXPECT_EQ(again->data, nullptr);
  EXPECT_EQ(again->created, Picoseconds{});
  EXPECT_EQ(again->cookie, 0U);
  EXPECT_TRUE(again->latency.hops().empty());
  EXPECT_TRUE(again->payload().empty());
}

TEST(TlpPool, InlineAndLargePayloadsAlternate) {
  TlpPool pool;
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    const TlpPtr tlp = pool.make();
    std::vector<std::byte> bytes(random() % 3 == 0 ? 513 + random() % 70'000 : random() % 513);
    for (std::byte& b : bytes) {
      b = static_cast<std::byte>(random());
    }
    tlp->store(bytes);
    ASSERT_EQ(tlp->length, bytes.size());
    ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(), tlp->data));
    tlp->borrow(bytes);
    ASSERT_TRUE(tlp->borrowed());
    ASSERT_EQ(tlp->data, bytes.data());
  }
}

std::vector<void*> returned_carriers;

TEST(TlpPool, ACarrierGoesBackOnce) {
  returned_carriers.clear();
  TlpPool pool;
  pool.set_carrier_hook([](void* carrier) { returned_carriers.push_back(carrier); });
  int carrier = 0;
  {
    const TlpPtr tlp = pool.make();
    tlp->carrier = &carrier;
  }
  { const TlpPtr tlp = pool.make(); }  // the same storage, without a carrier
  EXPECT_EQ(returned_carriers, std::vector<void*>{&carrier});
}

TEST(LatencyBreakdown, TotalsSurviveMoreHopsThanThereIsRoomFor) {
  LatencyBreakdown latency;
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < 3 * LatencyBreakdown::max_hops; ++i) {
    HopCost& hop = latency.add(static_cast<ComponentId>(i));
    hop.queue += i;
    hop.credit += 2 * i;
    hop.serialise += 3 * i;
    hop.propagate += 4 * i;
    hop.process += 5 * i;
    sum += 15 * i;
  }
  EXPECT_EQ(latency.hops().size(), LatencyBreakdown::max_hops);
  EXPECT_EQ(latency.total(), Picoseconds{sum});
  EXPECT_EQ(latency.hops()[3].component, 3);
  EXPECT_EQ(latency.hops()[3].serialise, 9U);
  LatencyBreakdown copy;
  copy.copy_from(latency);
  latency.clear();
  EXPECT_EQ(copy.total(), Picoseconds{sum});
  EXPECT_EQ(latency.total(), Picoseconds{});
}

}  // namespace
}  // namespace orrery::pcie::tlp_test
