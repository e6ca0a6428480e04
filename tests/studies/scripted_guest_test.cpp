// A scripted guest and its mlx5 driver on a whole platform.
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.h"
#include "studies/mlx5_client.h"
#include "studies/scripted_guest.h"
#include "systemc_models/rnic/mlx5/mlx5_rnic.h"

namespace orrery::studies::scripted_guest_test {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t megabyte = 1 << 20;
constexpr Picoseconds limit{1'000'000'000'000};

models::ServerConfig two_rnics() {
  models::ServerConfig config;
  config.topology.switches = 2;
  config.topology.gpus_per_switch = 0;
  config.rnic.port_type = models::RnicPortType::infiniband;
  return config;
}

template <class Call>
std::string complaint(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Two guests, each with an RNIC, connected.
struct Pair {
  explicit Pair(const models::ServerConfig& config) : platform(config) {
    a.connect(b);
    b.connect(a);
  }
  std::uint32_t lid(unsigned ordinal) {
    rnic::ManagementSettings settings;
    rnic::give_identity(settings, 0, ordinal);
    return settings.lid;
  }
  void finish() {
    unsigned done = 0;
    run_until(platform, limit, "the completion", [&] { return (done += a.poll()) != 0; });
  }
  models::Platform platform;
  ScriptedGuest left{platform, "rnic0", 8 * megabyte};
  ScriptedGuest right{platform, "rnic1", 8 * megabyte};
  Mlx5Client a{left, {.lid = lid(0), .mtu = 1024, .log_depth = 6, .max_inline = 64}};
  Mlx5Client b{right, {.lid = lid(1), .mtu = 1024, .log_depth = 6, .max_inline = 64}};
};

TEST(ScriptedGuest, TakesAFunctionThatThereIs) {
  models::Platform platform(two_rnics());
  EXPECT_THAT(complaint([&] { const ScriptedGuest guest(platform, "rnic7", megabyte); }), HasSubstr("rnic7"));
}

TEST(ScriptedGuest, MemoryEndsWhereItEnds) {
  models::Platform platform(two_rnics());
  ScriptedGuest guest(platform, "rnic0", megabyte);
  EXPECT_EQ(guest.allocate(1), 0U);
  EXPECT_EQ(guest.allocate(megabyte - 4096), 4096U);
  EXPECT_THAT(complaint([&] { guest.allocate(1); }), HasSubstr("no 1 bytes"));
  EXPECT_THAT(complaint([&] { static_cast<void>(guest.memory(megabyte - 7, 8)); }), HasSubstr("not its memory"));
  EXPECT_THAT(complaint([&] { static_cast<void>(guest.memory(~0ULL, 8)); }), HasSubstr("not its memory"));
  EXPECT_EQ(guest.memory(megabyte - 8, 8).size(), 8U);
}

TEST(Mlx5Client, WritesWhatWasAskedAndNothingElse) {
  Pair pair(two_rnics());
  std::mt19937_64 random(7);
  const std::uint64_t from = pair.left.allocate(megabyte);
  const std::uint64_t to = pair.right.allocate(megabyte);
  for (std::byte& byte : pair.left.memory(from, megabyte)) {
    byte = static_cast<std::byte>(random());
  }
  // Inline, one packet, many packets; at odd addresses, with untouched bytes around.
  struct Row {
    std::uint64_t source;
    std::uint32_t bytes;
    std::uint64_t target;
  };
  std::vector<std::byte> expected(megabyte);
  for (const Row& row : {Row{3, 17, 1001}, Row{100, 64, 5000}, Row{4095, 1000, 70'001}, Row{9, 300'001, 200'003}}) {
    pair.a.write(from + row.source, row.bytes, to + row.target, pair.b.key());
    pair.finish();
    std::memcpy(expected.data() + row.target, pair.left.memory(from + row.source, row.bytes).data(), row.bytes);
  }
  EXPECT_EQ(std::memcmp(expected.data(), pair.right.memory(to, megabyte).data(), megabyte), 0);
}

TEST(Mlx5Client, AFullQueueIsSaid) {
  Pair pair(two_rnics());
  const std::uint64_t from = pair.left.allocate(4096);
  const std::uint64_t to = pair.right.allocate(4096);
  while (pair.a.room() != 0) {
    pair.a.write(from, 8, to, pair.b.key());
  }
  EXPECT_THAT(complaint([&] { pair.a.write(from, 8, to, pair.b.key()); }), HasSubstr("send queue is full"));
  run_until(pair.platform, limit, "room", [&] { return pair.a.poll() != 0 || pair.a.room() != 0; });
}

TEST(Mlx5Client, AWrongKeyIsARemoteAccessError) {
  Pair pair(two_rnics());
  const std::uint64_t from = pair.left.allocate(4096);
  const std::uint64_t to = pair.right.allocate(4096);
  pair.a.write(from, 8, to, pair.b.key() ^ 0x1U);
  EXPECT_THAT(complaint([&] { pair.finish(); }), HasSubstr("syndrome 0x13"));
  EXPECT_EQ(pair.right.memory(to, 1)[0], std::byte{0});
}

TEST(Mlx5Client, AFailedCommandIsNamed) {
  models::ServerConfig config = two_rnics();
  config.rnic.fault_opcode = 0x400;
  config.rnic.fault_status = 0xf;
  EXPECT_THAT(complaint([&] { const Pair pair(config); }), HasSubstr("command 0x400: delivery status 0x0, status 0xf"));
}

TEST(Mlx5Client, WithoutFirmwareItIsWaitedForInVain) {
  models::ServerConfig config = two_rnics();
  config.rnic.firmware = models::RnicFirmware::none;
  EXPECT_THAT(complaint([&] { const Pair pair(config); }), HasSubstr("the RNIC's firmware: it hasn't happened"));
}

}  // namespace
}  // namespace orrery::studies::scripted_guest_test
