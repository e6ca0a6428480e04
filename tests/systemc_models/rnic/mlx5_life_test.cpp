// The end of a function's life and its next one: resets, the interface disabled, teardown of every kind.
#include <gtest/gtest.h>

#include "tests/systemc_models/rnic/mlx5_command_rig.h"

namespace orrery::test::mlx5_life_test {
namespace {

class Mlx5Life : public Mlx5Command {};

TEST_F(Mlx5Life, ResetMidCommand) {
  objects();
  const std::uint32_t qpn = ready_qp();
  data->slow.insert({ContextKind::qp, qpn});
  driver.prepare(0, Mlx5Driver::command(0x501, 0, {qpn}), 16);
  driver.ring(0);
  bus.run();
  port.cancel_all();
  rnic.reset();
  data->slow.clear();
  EXPECT_EQ(driver.read(0x014) >> 8 & 7U, 1U);  // disabled at once, until the queue is set up anew
  bus.run();
  driver.forget_command_eq();
  driver.bring_up();
  EXPECT_EQ(driver.read(0x014) >> 8 & 7U, 0U);
  EXPECT_TRUE(driver.run(0x800).ok());
  EXPECT_FALSE(data->has(ContextKind::cq, cqn));
}

TEST_F(Mlx5Life, ResetWithDmaUnderWay) {
  driver.bring_up();
  bus.max_delay = 1'000'000;
  for (int round = 0; round < 40; ++round) {
    driver.prepare(0, Mlx5Driver::command(0x100, 1), 4112);
    driver.ring(0);
    for (int events = 0; events < round; ++events) {
      bus.step();
    }
    port.cancel_all();
    rnic.reset();
    driver.bring_up();
    ASSERT_TRUE(driver.run(0x800).ok()) << round;
  }
}

TEST_F(Mlx5Life, DisabledByTheGuest) {
  objects();
  driver.write(0x014, 1U << 8);
  bus.run();
  EXPECT_EQ(driver.read(0x014) >> 8 & 7U, 1U);
  EXPECT_FALSE(data->has(ContextKind::cq, cqn));
  driver.forget_command_eq();
  driver.bring_up();
}

TEST_F(Mlx5Life, TeardownDropsWhatIsLeft) {
  objects();
  static_cast<void>(ready_qp());
  EXPECT_TRUE(driver.run(0x103).ok());
  driver.forget_command_eq();
  EXPECT_TRUE(driver.run(0x105, 0, {}, 12).ok());
  if (firmware::Firmware* fw = native_firmware()) {
    EXPECT_EQ(fw->qps.used(), 0U);
    EXPECT_EQ(fw->cqs.used(), 0U);
    EXPECT_EQ(fw->pds.used(), 0U);
    EXPECT_EQ(fw->uars.used(), 0U);
    EXPECT_EQ(fw->translations.used(), 0U);
  }
  EXPECT_FALSE(data->has(ContextKind::cq, cqn));
  driver.bring_up();
}

// The driver's last command at shutdown; after kexec the next kernel starts from ENABLE_HCA.
TEST_F(Mlx5Life, ForcedTeardownLeavesNothing) {
  objects();
  static_cast<void>(ready_qp());
  const Reply reply = driver.run(0x103, 0, {1});
  EXPECT_TRUE(reply.ok());
  EXPECT_EQ(reply.output[0x0c] & 1U, 0U);  // state: it was done
  EXPECT_FALSE(data->has(ContextKind::cq, cqn));
  if (firmware::Firmware* fw = native_firmware()) {
    EXPECT_EQ(fw->qps.used(), 0U);
    EXPECT_EQ(fw->pds.used(), 0U);
    EXPECT_EQ(fw->page_count, 0U);
  }
  driver.forget_command_eq();
  EXPECT_EQ(driver.run(0x800).status, number(Status::bad_system_state));
  driver.bring_up();
  EXPECT_TRUE(driver.run(0x800).ok());
}

// Prepared by a command, done by the interface's state.
TEST_F(Mlx5Life, FastTeardown) {
  objects();
  const Reply reply = driver.run(0x103, 0, {2});
  EXPECT_TRUE(reply.ok());
  EXPECT_EQ(reply.output[0x0c] & 1U, 0U);
  EXPECT_TRUE(data->has(ContextKind::cq, cqn));
  driver.write(0x014, 1U << 8);
  bus.run();
  EXPECT_EQ(driver.read(0x014) >> 8 & 7U, 1U);
  EXPECT_FALSE(data->has(ContextKind::cq, cqn));
  driver.forget_command_eq();
  driver.bring_up();
}

TEST_F(Mlx5Life, TeardownOfAnUnknownKind) {
  objects();
  EXPECT_EQ(driver.run(0x103, 0, {3}).status, number(Status::bad_parameter));
  EXPECT_TRUE(data->has(ContextKind::cq, cqn));
}

}  // namespace
}  // namespace orrery::test::mlx5_life_test
