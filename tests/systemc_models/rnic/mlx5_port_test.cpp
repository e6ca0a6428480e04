// Ethernet ports from the driver's side: registers, queues, addresses, counters.
#include <gtest/gtest.h>

#include "tests/systemc_models/rnic/mlx5_command_rig.h"

namespace orrery::test::mlx5_port_test {
namespace {

class Mlx5Ethernet : public testing::Test, public Mlx5Rig {
 protected:
  Mlx5Ethernet() : Mlx5Rig(rig_settings(rnic::reg::PortType::ethernet)) {}
  // ACCESS_REG; `size` of the register.
  Reply access(std::uint32_t id, bool read, std::uint32_t size, std::initializer_list<std::uint32_t> words) {
    Words in(0x10 + size);
    in.set(0, 0x805U << 16).set(4, read ? 1 : 0).set(8, id);
    std::size_t at = 0x10;
    for (const std::uint32_t word : words) {
      in.set(at, word);
      at += 4;
    }
    return driver.run(in, static_cast<std::uint32_t>(0x10 + size));
  }
};

TEST_F(Mlx5Ethernet, PortIsTakenDownAndUp) {
  driver.bring_up();
  driver.create_command_eq();
  const Reply asynchronous = driver.create_eq(1U << 9, 5, 0);
  const std::uint64_t ring = driver.last_ring;
  ASSERT_TRUE(asynchronous.ok());
  const auto port_down = [&] { return data->context<rnic::FunctionContext>(ContextKind::function, 0).port_down; };
  const auto event = [&](unsigned index) {
    Words eqe(64);
    bus.read(ring + 64 * index, eqe.bytes().data(), 64);
    return eqe;
  };
  EXPECT_EQ(driver.run(0x750, 0, {}).output[0x0c] & 0xffU, 0x11U);
  ASSERT_TRUE(access(0x5006, false, 16, {0x0001'0200, 0x8000'0000}).ok());
  EXPECT_EQ(port_down(), 1U);
  EXPECT_EQ(driver.run(0x750, 0, {}).output[0x0c] & 0xffU, 0U);
  EXPECT_EQ(access(0x5006, true, 16, {0x0001'0000}).output[0x10] & 0xf0fU, 0x202U);
  Words eqe = event(0);
  EXPECT_EQ(eqe[0] & 0xff'ffffU, 0x09'0001U);                               // port change, down
  EXPECT_EQ(eqe[0x28] >> 28, 1U);                                           // port 1
  ASSERT_TRUE(access(0x5006, false, 16, {0x0001'0200, 0x8000'0000}).ok());  // already
  ASSERT_TRUE(access(0x5006, false, 16, {0x0001'0100, 0x8000'0000}).ok());
  EXPECT_EQ(port_down(), 0U);
  eqe = event(1);
  EXPECT_EQ(eqe[0] & 0xff'ffffU, 0x09'0004U);
  EXPECT_EQ(access(0x5006, false, 16, {0x0001'0300, 0x8000'0000}).status, number(Status::bad_parameter));
}

TEST_F(Mlx5Ethernet, QueuesAreQueried) {
  driver.bring_up();
  driver.create_command_eq();
  const std::uint32_t cqn = driver.create_cq(driver.create_eq(0, 6, 1).handle()).handle();
  const std::uint32_t pd = driver.run(0x800).handle();
  const std::uint64_t record = driver.page();
  for (const bool send : {true, false}) {
    Words create(0x118);
    create.set(0, (send ? 0x904U : 0x908U) << 16).set(0x24, 77).set(0x28, cqn);
    create.put(0x50, layout::wq::log_stride, 6).put(0x50, layout::wq::log_size, 4).put(0x50, layout::wq::pd, pd);
    create.put(0x50, layout::wq::uar_page, driver.uar);
    create.set64(0x50 + layout::wq::doorbell.offset, record).set64(0x110, driver.pages(1));
    const Reply made = driver.run(create, 16);
    ASSERT_TRUE(made.ok()) << made.syndrome;
    const auto query = [&](std::uint32_t handle) {
      Words in(16);
      in.set(0, (send ? 0x907U : 0x90bU) << 16).set(8, handle);
      return driver.run(in, 0x110);
    };
    Reply reply = query(made.handle());
    ASSERT_TRUE(reply.ok());
    EXPECT_EQ(reply.output[0x20] >> 20 & 0xfU, 0U);  // reset
    EXPECT_EQ(reply.output[0x24], 77U);
    EXPECT_EQ(reply.output[0x28], cqn);
    EXPECT_EQ(reply.output.get(0x50, layout::wq::type), 1U);
    EXPECT_EQ(reply.output.get(0x50, layout::wq::log_stride), 6U);
    EXPECT_EQ(reply.output.get(0x50, layout::wq::log_size), 4U);
    EXPECT_EQ(reply.output.get(0x50, layout::wq::pd), pd);
    EXPECT_EQ(reply.output.get(0x50, layout::wq::uar_page), send ? driver.uar : 0U);
    EXPECT_EQ(reply.output[0x50 + layout::wq::doorbell.offset + 4], static_cast<std::uint32_t>(record));
    Words modify(0x110);
    modify.set(0, (send ? 0x905U : 0x909U) << 16).set(8, made.handle()).set(0x20, 1U << 20);
    ASSERT_TRUE(driver.run(modify, 16).ok());
    EXPECT_EQ(query(made.handle()).output[0x20] >> 20 & 0xfU, 1U);  // ready
    EXPECT_EQ(query(made.handle() + 1).status, number(Status::bad_resource));
  }
}

TEST_F(Mlx5Ethernet, UnicastAddressList) {
  driver.bring_up();
  const auto give = [&](std::uint32_t type, const std::vector<std::uint64_t>& list) {
    Words in(0x100 + 0x100 + 8 * list.size());
    in.set(0, 0x755U << 16).set(0x0c, layout::nic_vport::select_list);
    in.put(0x100, layout::nic_vport::list_type, type);
    in.put(0x100, layout::nic_vport::list_size, static_cast<std::uint32_t>(list.size()));
    for (std::size_t i = 0; i < list.size(); ++i) {
      in.set64(0x200 + 8 * i, list[i]);
    }
    return driver.run(in, 16);
  };
  const auto at = [&](std::uint32_t i) { return data->context<rnic::MacContext>(ContextKind::mac, i).mac; };
  ASSERT_TRUE(give(0, {0x0200'0000'0001, 0x0200'0000'0002, 0x0200'0000'0003}).ok());
  EXPECT_EQ(at(0), 0x0200'0000'0001U);
  EXPECT_EQ(at(2), 0x0200'0000'0003U);
  EXPECT_TRUE(give(1, {0x0100'5e00'0001}).ok());  // multicast: nothing to filter
  ASSERT_TRUE(give(0, {0x0200'0000'0009}).ok());
  EXPECT_EQ(at(0), 0x0200'0000'0009U);
  EXPECT_FALSE(data->has(ContextKind::mac, 1));
  EXPECT_FALSE(data->has(ContextKind::mac, 2));
  EXPECT_EQ(give(0, {0x0100'5e00'0001}).status, number(Status::bad_parameter));
  EXPECT_EQ(give(0, {0}).status, number(Status::bad_parameter));
  EXPECT_EQ(give(0, std::vector<std::uint64_t>(rnic::max_macs + 1, 2)).status, number(Status::bad_parameter));
  EXPECT_EQ(at(0), 0x0200'0000'0009U);
}

TEST_F(Mlx5Ethernet, PortCounters) {
  driver.bring_up();
  rnic::FrameCounters c;
  c.received_unicast = {3, 300};
  c.roce_received_unicast = {5, 5000};
  c.received_broadcast = {1, 60};
  c.sent_multicast = {2, 200};
  c.roce_sent_multicast = {4, 400};
  c.no_buffer = 9;
  data->write_context(ContextKind::frame_counters, 0, std::as_bytes(std::span(&c, 1)));
  const Reply frames = access(0x5008, true, 256, {0x0001'0000});
  ASSERT_TRUE(frames.ok());
  EXPECT_EQ(frames.output[0x1c], 6U);            // frames sent
  EXPECT_EQ(frames.output[0x24], 9U);            // received
  EXPECT_EQ(frames.output[0x3c], 600U + 6 * 4);  // octets, with FCS
  EXPECT_EQ(frames.output[0x44], 300U + 5000 + 60 + 9 * 4);
  EXPECT_EQ(frames.output[0x4c], 6U);  // multicast sent
  const Reply interface = access(0x5008, true, 256, {0x0001'0001});
  EXPECT_EQ(interface.output[0x24], 8U);  // unicast in
  EXPECT_EQ(interface.output[0x2c], 9U);  // discarded
  // The vport's: Ethernet frames and RDMA packets apart.
  Words query(32);
  query.set(0, 0x770U << 16);
  const Reply vport = driver.run(query, 0x210);
  ASSERT_TRUE(vport.ok());
  EXPECT_EQ(vport.output[0x34], 5U);
  EXPECT_EQ(vport.output[0x3c], 5000U);
  EXPECT_EQ(vport.output[0x64], 4U);
  EXPECT_EQ(vport.output[0x94], 3U);
  // Flow control: none.
  const Reply pause = access(0x5007, true, 16, {0x0001'0000});
  ASSERT_TRUE(pause.ok());
  EXPECT_EQ(pause.output[0x14] | pause.output[0x18], 0U);
  EXPECT_EQ(access(0x5007, false, 16, {0x0001'0000}).status, number(Status::bad_parameter));
}

}  // namespace
}  // namespace orrery::test::mlx5_port_test
