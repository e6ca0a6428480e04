// A driver at the command interface of an RNIC, with what most objects need.
#pragma once

#include <gtest/gtest.h>

#include "firmware/firmware.h"
#include "tests/systemc_models/rnic/mlx5_rig.h"

namespace orrery::test {

using firmware::Delivery;
using firmware::Status;
using firmware::Syndrome;
using rnic::ContextKind;
namespace layout = firmware::layout;

constexpr std::uint32_t number(Status status) {
  return static_cast<std::uint32_t>(status);
}
constexpr std::uint32_t number(Delivery delivery) {
  return static_cast<std::uint32_t>(delivery);
}

class Mlx5Command : public testing::Test, public Mlx5Rig {
 protected:
  // What most objects need.
  void objects() {
    driver.bring_up();
    driver.create_command_eq();
    const Reply eq = driver.create_eq(0, 6, 1);
    ASSERT_TRUE(eq.ok() && eq.by_event);
    eqn = eq.handle();
    pd = driver.run(0x800).handle();
    cqn = driver.create_cq(eqn).handle();
    ASSERT_NE(pd, 0U);
    ASSERT_NE(cqn, 0U);
  }
  // RC, ready to send.
  std::uint32_t ready_qp() {
    const Reply qp = driver.create_qp({.pd = pd, .cqn = cqn});
    EXPECT_TRUE(qp.ok());
    EXPECT_TRUE(driver.modify_qp(0x502, qp.handle(), [](Words&) {}).ok());
    EXPECT_TRUE(driver.modify_qp(0x503, qp.handle(), [](Words& in) { in.put(0x18, layout::qpc::mtu, 3); }).ok());
    EXPECT_TRUE(driver.modify_qp(0x504, qp.handle(), [](Words&) {}).ok());
    return qp.handle();
  }

  std::uint32_t eqn = 0;
  std::uint32_t pd = 0;
  std::uint32_t cqn = 0;
};

}  // namespace orrery::test
