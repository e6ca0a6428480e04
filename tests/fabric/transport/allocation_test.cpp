// Hot paths don't allocate: a fabric that has reached its working set runs on without calls of operator new.
#include <cstdlib>
#include <new>

#include "fabric/wire_codec.h"
#include "tests/fabric/transport/two_racks.h"

static std::uint64_t allocations = 0;
// None of these is inlined: g++ would see only one side of malloc() and free(), and warn.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) {
    return memory;
  }
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*size*/) noexcept {
  std::free(memory);
}

namespace orrery::fabric::allocation_test {
namespace {

TEST(Allocation, NoneWhileAFabricRuns) {
  testing::Fabric fabric({.link = {.impairments = {.loss = 0.005, .duplication = 0.005, .reordering = 0.01}},
                          .tor = {.ecn = {.enabled = true}}});
  testing::Hosts hosts(fabric);
  for (unsigned i = 0; i < 8; ++i) {
    SenderSettings settings;
    settings.paths = {.paths = 128, .stream = i};
    settings.congestion.base_rtt = {5'000'000};
    settings.out_of_order_trigger = i % 2 == 0;
    hosts.add(std::make_unique<testing::Flow>(fabric, i, i, 8 + i, settings, 1U << 23));
    hosts.flows.back()->start();
  }
  fabric.events.run_until({5'000'000'000});
  const std::uint64_t fresh = hosts.flows[0]->receiver.counters().fresh;
  const std::uint64_t before = allocations;
  fabric.events.run_until({8'000'000'000});
  // A queue may still see a longer burst than ever before; but none for each packet, or for each thousand.
  EXPECT_GT(hosts.flows[0]->receiver.counters().fresh, fresh + 10'000);
  EXPECT_LE(allocations - before, 20U);
}

TEST(Allocation, NoneInPoolAndCodec) {
  PacketPool pool;
  RoceHeaders headers;
  headers.bth.opcode = opcode_of(RoceTransport::rc, RoceOperation::send_only);
  const std::vector<std::byte> payload(4096);
  std::vector<std::byte> frame(max_frame_bytes);
  pool.release(pool.make_roce(headers, payload));
  const std::uint64_t before = allocations;
  for (int i = 0; i < 100; ++i) {
    const Packet packet = packet_of(pool, pool.make_roce(headers, payload));
    const std::size_t size = encode_packet(pool, packet, frame);
    DecodedFrame decoded;
    EXPECT_EQ(decode_frame(std::span(frame).first(size), decoded), DecodeStatus::ok);
    pool.release(packet.content);
  }
  EXPECT_EQ(allocations, before);
}

}  // namespace
}  // namespace orrery::fabric::allocation_test
