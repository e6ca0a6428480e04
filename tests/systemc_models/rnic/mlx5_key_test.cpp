// Memory keys, by command and by the driver's UMR work requests.
#include <gtest/gtest.h>

#include "tests/systemc_models/rnic/mlx5_command_rig.h"

namespace orrery::test::mlx5_key_test {
namespace {

struct Umr {
  std::uint32_t qp = 0;
  std::uint32_t key = 0;
  std::uint32_t flags = 0;  // of byte 0
  std::uint32_t octwords = 0;
  std::uint32_t offset = 0;
  std::uint64_t mask = 0;
  std::uint32_t list_key = rnic::reserved_key;
  std::uint64_t list = 0;
  std::uint32_t pd = 0;
  bool is_free = false;
  std::uint8_t variant = 0;
  std::uint64_t start = 0;
  std::uint64_t length = 0;
  std::uint32_t page_shift = 12;
};

std::vector<std::byte> umr_request(const Umr& u) {
  namespace mkc = layout::mkc;
  Words w(192);
  w.set(0, 0x25).set(4, u.qp << 8 | 9).set(0x0c, u.key);
  w.set(16, u.flags << 24).set(20, u.octwords << 16 | (u.offset & 0xffffU)).set64(24, u.mask).set(32, u.offset >> 16);
  w.put(64, mkc::free, u.is_free ? 1 : 0).put(64, mkc::pd, u.pd).put(64, mkc::variant, u.variant);
  w.put(64, mkc::qpn, 0xff'ffff).put(64, mkc::local_read, 1).put(64, mkc::local_write, 1).put(64, mkc::remote_read, 1);
  w.put(64, mkc::log_page_size, u.page_shift);
  w.set64(64 + mkc::start.offset, u.start).set64(64 + mkc::length.offset, u.length);
  w.set(128, u.octwords * 16).set(132, u.list_key).set64(136, u.list);
  return w.bytes();
}

class Mlx5Umr : public Mlx5Command {
 protected:
  static constexpr std::uint64_t enable_mask = 0x203e'20c3;  // as the stock driver has it
  static constexpr std::uint64_t revoke_mask = 0x2000'0080;

  void SetUp() override {
    objects();
    umr_pd = driver.run(0x800).handle();
    qpn = driver.create_qp({.service = 0x0c, .cqn = cqn, .rq_type = 3, .reserved_key = true}).handle();
    ASSERT_NE(qpn, 0U);
    ASSERT_TRUE(driver.modify_qp(0x502, qpn, [this](Words& in) { in.put(0x18, layout::qpc::pd, umr_pd); }).ok());
    ASSERT_TRUE(driver.modify_qp(0x503, qpn, [](Words& in) { in.put(0x18, layout::qpc::mtu, 5); }).ok());
    ASSERT_TRUE(driver.modify_qp(0x504, qpn, [](Words&) {}).ok());
  }
  rnic::CompletionCode request(const Umr& u, std::uint32_t from = 0) {
    const std::uint32_t qp = from == 0 ? qpn : from;
    data->completed.clear();
    data->leave_to_firmware(0, qp, umr_request(u));
    bus.run();
    EXPECT_EQ(data->completed.size(), 1U);
    return data->completed.empty() ? rnic::CompletionCode::aborted : data->completed[0].code;
  }
  std::uint64_t list_of(std::uint32_t entries, std::uint64_t first) {
    Words list(entries * 8);
    for (std::uint32_t i = 0; i < entries; ++i) {
      list.set64(i * 8, (first + i * page_bytes) | 3);
    }
    const std::uint64_t at = driver.pages((entries * 8 + page_bytes - 1) / page_bytes);
    bus.write(at, list.bytes());
    return at;
  }
  std::uint32_t umr_pd = 0;
  std::uint32_t qpn = 0;
};

TEST_F(Mlx5Umr, RegistrationAndRevocation) {
  const std::uint32_t index = driver.create_mkey(umr_pd, 1, 8, true, 4).handle();
  ASSERT_NE(index, 0U);
  const std::uint64_t list = list_of(16, 0x7000'0000);
  EXPECT_EQ(request({.key = index << 8 | 4,
                     .flags = 0x30,
                     .octwords = 8,
                     .mask = enable_mask,
                     .list = list,
                     .pd = pd,
                     .variant = 4,
                     .start = 0xdead'b000,
                     .length = 65536}),
            rnic::CompletionCode::success);
  auto key = data->context<rnic::MkeyContext>(ContextKind::mkey, index);
  EXPECT_EQ(key.state, rnic::KeyState::valid);
  EXPECT_EQ(key.pd, pd);
  EXPECT_EQ(key.start, 0xdead'b000U);
  EXPECT_EQ(key.length, 65536U);
  EXPECT_EQ(key.access, rnic::key_local_read | rnic::key_local_write | rnic::key_remote_read);
  for (std::uint32_t i = 0; i < 16; ++i) {
    EXPECT_EQ(data->translation[key.translation + i], (0x7000'0000U + i * page_bytes) | 3U);
  }
  // In use: the PD can't go; a second enabling is refused.
  EXPECT_EQ(driver.run(0x801, 0, {pd}).status, number(Status::bad_resource_state));
  EXPECT_EQ(request({.key = index << 8 | 4, .flags = 0x30, .octwords = 8, .mask = enable_mask, .list = list, .pd = pd}),
            rnic::CompletionCode::memory_window_bind);
  EXPECT_EQ(request({.key = index << 8 | 4, .flags = 0x80, .mask = revoke_mask, .pd = umr_pd, .is_free = true}),
            rnic::CompletionCode::success);
  key = data->context<rnic::MkeyContext>(ContextKind::mkey, index);
  EXPECT_EQ(key.state, rnic::KeyState::free);
  EXPECT_EQ(key.pd, umr_pd);
  EXPECT_TRUE(driver.run(0x801, 0, {pd}).ok());
}

TEST_F(Mlx5Umr, LongListsComeInPieces) {
  constexpr std::uint32_t entries = 40'000;
  const std::uint32_t index = driver.create_mkey(umr_pd, 1, entries / 2, true, 0).handle();
  ASSERT_NE(index, 0U);
  EXPECT_EQ(request({.key = index << 8,
                     .flags = 0x30,
                     .octwords = entries / 2,
                     .mask = enable_mask,
                     .list = list_of(entries, 0x9000'0000),
                     .pd = pd,
                     .length = entries * page_bytes}),
            rnic::CompletionCode::success);
  const auto key = data->context<rnic::MkeyContext>(ContextKind::mkey, index);
  for (const std::uint32_t i : {0U, 8191U, 8192U, entries - 1}) {
    EXPECT_EQ(data->translation[key.translation + i], (0x9000'0000U + i * page_bytes) | 3U);
  }
}

TEST_F(Mlx5Umr, ListOnlyAtAnOffset) {
  const std::uint32_t index = driver.create_mkey(umr_pd, 1, 8, false, 0).handle();
  const auto before = data->context<rnic::MkeyContext>(ContextKind::mkey, index);
  EXPECT_EQ(request({.key = index << 8, .flags = 0x50, .octwords = 2, .offset = 4, .list = list_of(4, 0x1'0000)}),
            rnic::CompletionCode::success);
  EXPECT_EQ(data->translation[before.translation + 7], 0U);
  EXPECT_EQ(data->translation[before.translation + 8], 0x1'0003U);
  EXPECT_EQ(request({.key = index << 8, .flags = 0x50, .octwords = 2, .offset = 7, .list = list_of(4, 0x1'0000)}),
            rnic::CompletionCode::memory_window_bind);
}

TEST_F(Mlx5Umr, ChecksAndFailures) {
  const std::uint32_t index = driver.create_mkey(umr_pd, 1, 8, true, 0).handle();
  const std::uint64_t list = list_of(16, 0x7000'0000);
  Umr good{.key = index << 8, .flags = 0x30, .octwords = 8, .mask = enable_mask, .list = list, .pd = pd, .length = 1};
  Umr bad = good;
  bad.key = 0x77'7700;
  EXPECT_EQ(request(bad), rnic::CompletionCode::memory_window_bind);
  bad = good;
  bad.flags = 0x50;  // fails if free
  EXPECT_EQ(request(bad), rnic::CompletionCode::memory_window_bind);
  bad = good;
  bad.list_key = 0x1234'00;
  EXPECT_EQ(request(bad), rnic::CompletionCode::local_protection);
  bad = good;
  bad.pd = 4000;
  EXPECT_EQ(request(bad), rnic::CompletionCode::local_protection);
  bad = good;
  bad.page_shift = 3;
  EXPECT_EQ(request(bad), rnic::CompletionCode::local_qp_operation);
  bus.break_page(list);
  EXPECT_EQ(request(good), rnic::CompletionCode::local_protection);
  bus.mend_page(list);
  EXPECT_EQ(data->context<rnic::MkeyContext>(ContextKind::mkey, index).state, rnic::KeyState::free);
  // An ordinary QP must not give keys to other domains.
  const std::uint32_t ordinary = ready_qp();
  EXPECT_EQ(request(good, ordinary), rnic::CompletionCode::local_protection);
  EXPECT_EQ(request(good), rnic::CompletionCode::success);
}

TEST_F(Mlx5Umr, RevocationWaitsForAccessesUnderWay) {
  const std::uint32_t index = driver.create_mkey(umr_pd, 1, 8, false, 0).handle();
  data->slow.insert({ContextKind::mkey, index});
  data->completed.clear();
  data->leave_to_firmware(
      0, qpn, umr_request({.key = index << 8, .flags = 0x80, .mask = revoke_mask, .pd = umr_pd, .is_free = true}));
  for (int i = 0; i < 100; ++i) {
    bus.step();
  }
  EXPECT_TRUE(data->completed.empty());
  data->slow.clear();
  bus.run();
  EXPECT_EQ(data->completed.size(), 1U);
}

TEST_F(Mlx5Umr, ManyAtOnce) {
  std::vector<std::uint32_t> qps;
  const std::uint64_t list = list_of(16, 0x7000'0000);
  std::vector<std::uint32_t> keys;
  for (int i = 0; i < 20; ++i) {
    qps.push_back(
        driver.create_qp({.service = 0x0c, .pd = umr_pd, .cqn = cqn, .rq_type = 3, .reserved_key = true}).handle());
    keys.push_back(driver.create_mkey(umr_pd, 1, 8, true, 0).handle());
  }
  data->completed.clear();
  for (std::size_t i = 0; i < qps.size(); ++i) {
    data->leave_to_firmware(0, qps[i],
                            umr_request({.key = keys[i] << 8,
                                         .flags = 0x30,
                                         .octwords = 8,
                                         .mask = enable_mask,
                                         .list = list,
                                         .pd = pd,
                                         .length = 1}));
  }
  bus.run();
  EXPECT_EQ(data->completed.size(), qps.size());
}

TEST_F(Mlx5Command, KeyListsOfCreate) {
  objects();
  const std::uint32_t index = driver.create_mkey(pd, 1, 4, false, 0, {0x1'0000, 0x2'0000, 0x3'0000}).handle();
  const auto key = data->context<rnic::MkeyContext>(ContextKind::mkey, index);
  EXPECT_EQ(data->translation[key.translation + 1], 0x2'0003U);
  EXPECT_EQ(key.translation_count, 8U);
  EXPECT_EQ(data->translation[key.translation + 5], 0U);
  const Reply query = driver.run(0x201, 0, {index}, 80);
  EXPECT_EQ(query.output.get(0x10, layout::mkc::pd), pd);
}

}  // namespace
}  // namespace orrery::test::mlx5_key_test
