// VFIO_USER_DEVICE_SET_IRQS.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/qemu_bridge/session_harness.h"

namespace orrery::bridge::test::set_irqs_test {
namespace {

constexpr std::uint32_t none = wire::irq_set_data_none;
constexpr std::uint32_t boolean = wire::irq_set_data_bool;
constexpr std::uint32_t eventfd_data = wire::irq_set_data_eventfd;
constexpr std::uint32_t mask = wire::irq_set_action_mask;
constexpr std::uint32_t unmask = wire::irq_set_action_unmask;
constexpr std::uint32_t trigger = wire::irq_set_action_trigger;
constexpr std::uint32_t msix = wire::irq_msix;

class SetIrqs : public testing::Test {
 protected:
  SetIrqs() {
    for (FileDescriptor& event : events) {
      event = make_eventfd();
    }
    for (std::size_t i = 0; i < events.size(); ++i) {
      fds[i] = events[i].get();
    }
  }
  int set(std::uint32_t flags, std::uint32_t index, std::uint32_t start, std::uint32_t count,
          std::span<const int> descriptors = {}, std::string_view booleans = {}) {
    std::vector<std::byte> payload = bytes_of(
        wire::IrqSet{static_cast<std::uint32_t>(sizeof(wire::IrqSet) + booleans.size()), flags, index, start, count});
    append_bytes(payload, std::as_bytes(std::span(booleans)));
    return harness.error_of(wire::Command::device_set_irqs, payload, descriptors);
  }
  std::span<const int> first(std::size_t count) { return std::span(fds).first(count); }
  void fire(unsigned vector) { harness.function.sink->msix(vector); }

  Harness harness{FakeFunction(8), {}};
  std::array<FileDescriptor, 8> events;
  std::array<int, 8> fds{};
};

TEST_F(SetIrqs, VectorsReachTheirEventfds) {
  ASSERT_EQ(set(eventfd_data | trigger, msix, 2, 3, first(3)), 0);
  fire(2);
  fire(4);
  fire(4);
  EXPECT_EQ(take_events(fds[0]), 1U);
  EXPECT_EQ(take_events(fds[1]), 0U);
  EXPECT_EQ(take_events(fds[2]), 2U);
  fire(8);  // the function has no such vector
  fire(~0U);
  EXPECT_EQ(harness.session.interrupts().dropped(), 2U);
}

TEST_F(SetIrqs, AMaskedVectorFiresOnceWhenUnmasked) {
  ASSERT_EQ(set(eventfd_data | trigger, msix, 0, 2, first(2)), 0);
  ASSERT_EQ(set(none | mask, msix, 0, 1), 0);
  fire(0);
  fire(0);
  fire(1);
  EXPECT_EQ(take_events(fds[0]), 0U);
  EXPECT_EQ(take_events(fds[1]), 1U);
  EXPECT_TRUE(harness.session.interrupts().pending(msix, 0));
  ASSERT_EQ(set(none | unmask, msix, 0, 1), 0);
  EXPECT_EQ(take_events(fds[0]), 1U) << "a pending bit, not a count";
  EXPECT_FALSE(harness.session.interrupts().pending(msix, 0));
  ASSERT_EQ(set(none | unmask, msix, 0, 1), 0);
  EXPECT_EQ(take_events(fds[0]), 0U);
}

TEST_F(SetIrqs, BooleansChooseTheVectors) {
  ASSERT_EQ(set(eventfd_data | trigger, msix, 0, 4, first(4)), 0);
  ASSERT_EQ(set(boolean | mask, msix, 0, 4, {}, std::string_view("\0\1\0\7", 4)), 0);
  for (unsigned vector = 0; vector < 4; ++vector) {
    fire(vector);
    EXPECT_EQ(take_events(fds[vector]), vector % 2 == 0 ? 1U : 0U);
  }
  ASSERT_EQ(set(boolean | trigger, msix, 0, 3, {}, std::string_view("\1\1\0", 3)), 0);
  EXPECT_EQ(take_events(fds[0]), 1U);
  EXPECT_EQ(take_events(fds[1]), 0U) << "masked";
  EXPECT_EQ(take_events(fds[2]), 0U);
}

TEST_F(SetIrqs, EventfdsForMaskAndUnmask) {
  ASSERT_EQ(set(eventfd_data | mask, msix, 0, 1, first(1)), 0);
  ASSERT_EQ(set(eventfd_data | unmask, msix, 0, 1, {&fds[1], 1}), 0);
  ASSERT_EQ(set(none | mask, msix, 0, 1), 0);
  ASSERT_EQ(set(none | mask, msix, 0, 1), 0);
  EXPECT_EQ(take_events(fds[0]), 1U) << "only a change is an event";
  ASSERT_EQ(set(none | unmask, msix, 0, 1), 0);
  EXPECT_EQ(take_events(fds[1]), 1U);
}

// QEMU gives a vector its eventfd when the guest first unmasks it.
TEST_F(SetIrqs, AVectorWithoutEventfdIsPendingWhileItsIndexIsEnabled) {
  fire(1);
  ASSERT_EQ(set(eventfd_data | trigger, msix, 0, 1, first(1)), 0);
  fire(1);
  ASSERT_EQ(set(eventfd_data | trigger, msix, 1, 1, {&fds[1], 1}), 0);
  EXPECT_EQ(take_events(fds[1]), 1U) << "what fired before MSI-X was enabled is lost, what came after is not";
  // De-assigned, one by one: the index is disabled with the last.
  ASSERT_EQ(set(eventfd_data | trigger, msix, 1, 1), 0);
  fire(1);
  ASSERT_EQ(set(eventfd_data | trigger, msix, 0, 1), 0);
  EXPECT_FALSE(harness.session.interrupts().pending(msix, 1));
  ASSERT_EQ(set(eventfd_data | trigger, msix, 0, 2, first(2)), 0);
  EXPECT_EQ(take_events(fds[1]), 0U);
}

TEST_F(SetIrqs, CountZeroDisablesTheIndex) {
  const std::size_t before = open_descriptors();
  ASSERT_EQ(set(eventfd_data | trigger, msix, 0, 8, fds), 0);
  ASSERT_EQ(set(none | mask, msix, 3, 1), 0);
  EXPECT_EQ(open_descriptors(), before + 8);
  ASSERT_EQ(set(none | trigger, msix, 0, 0), 0);
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_FALSE(harness.session.interrupts().masked(msix, 3));
  fire(0);
  EXPECT_EQ(take_events(fds[0]), 0U);
  EXPECT_EQ(set(none | trigger, wire::irq_intx, 0, 0), 0) << "clients disable what isn't there, too";
}

TEST_F(SetIrqs, RequestAndErrorNotifiers) {
  EXPECT_FALSE(harness.session.request_release());
  EXPECT_FALSE(harness.session.report_failure());
  ASSERT_EQ(set(eventfd_data | trigger, wire::irq_req, 0, 1, first(1)), 0);
  ASSERT_EQ(set(eventfd_data | trigger, wire::irq_err, 0, 1, {&fds[1], 1}), 0);
  EXPECT_TRUE(harness.session.request_release());
  EXPECT_EQ(take_events(fds[0]), 1U);
  EXPECT_TRUE(harness.session.report_failure());
  EXPECT_EQ(take_events(fds[1]), 1U);
  EXPECT_EQ(set(none | mask, wire::irq_req, 0, 1), EINVAL) << "not maskable";
  EXPECT_EQ(set(eventfd_data | trigger, wire::irq_err, 0, 2, first(2)), EINVAL);
}

TEST_F(SetIrqs, IndicesTheFunctionLacks) {
  EXPECT_EQ(set(eventfd_data | trigger, wire::irq_intx, 0, 1, first(1)), EINVAL);
  EXPECT_EQ(set(eventfd_data | trigger, wire::irq_msi, 0, 1, first(1)), EINVAL);
  EXPECT_EQ(set(none | unmask, wire::irq_intx, 0, 1), EINVAL);
  EXPECT_EQ(set(none | trigger, 5, 0, 0), EINVAL);
  EXPECT_EQ(set(none | trigger, ~0U, 0, 0), EINVAL);
}

TEST_F(SetIrqs, WrongFlags) {
  for (const std::uint32_t flags : {0U, none, trigger, none | boolean | trigger, none | mask | unmask, 0x3fU,
                                    none | trigger | 0x40U, 0x80000000U | none | trigger}) {
    EXPECT_EQ(set(flags, msix, 0, 1), EINVAL) << flags;
  }
}

TEST_F(SetIrqs, WrongRanges) {
  EXPECT_EQ(set(none | trigger, msix, 0, 9), EINVAL);
  EXPECT_EQ(set(none | trigger, msix, 8, 1), EINVAL);
  EXPECT_EQ(set(none | trigger, msix, ~0U, 1), EINVAL);
  EXPECT_EQ(set(none | trigger, msix, 1, ~0U), EINVAL) << "start + count wraps";
  EXPECT_EQ(set(none | trigger, msix, 1, 0), EINVAL);
  EXPECT_EQ(set(none | mask, msix, 0, 0), EINVAL);
  EXPECT_EQ(set(eventfd_data | trigger, msix, 0, 0), EINVAL);
}

TEST_F(SetIrqs, WrongSizes) {
  EXPECT_EQ(harness.error_of(wire::Command::device_set_irqs), EINVAL);
  const std::vector<std::byte> whole = bytes_of(wire::IrqSet{20, none | trigger, msix, 0, 1});
  EXPECT_EQ(harness.error_of(wire::Command::device_set_irqs, std::span(whole).first(19)), EINVAL);
  EXPECT_EQ(set(none | trigger, msix, 0, 1, {}, "x"), EINVAL) << "data that the flags don't announce";
  EXPECT_EQ(set(boolean | trigger, msix, 0, 2, {}, "x"), EINVAL);
  EXPECT_EQ(set(boolean | trigger, msix, 0, 2, {}, "xyz"), EINVAL);
  EXPECT_EQ(set(boolean | trigger, msix, 0, 0xffffffff, {}, "x"), EINVAL);
  EXPECT_EQ(harness.error_of(wire::Command::device_set_irqs, bytes_of(wire::IrqSet{19, none | trigger, msix, 0, 1})),
            EINVAL);
  EXPECT_EQ(harness.error_of(wire::Command::device_set_irqs, bytes_of(wire::IrqSet{21, none | trigger, msix, 0, 1})),
            EINVAL);
}

TEST_F(SetIrqs, WrongDescriptors) {
  const std::size_t before = open_descriptors();
  EXPECT_EQ(set(none | trigger, msix, 0, 1, first(1)), EINVAL);
  EXPECT_EQ(set(eventfd_data | trigger, msix, 0, 2, first(1)), EINVAL);
  EXPECT_EQ(set(eventfd_data | trigger, msix, 0, 2, first(3)), EINVAL);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const FileDescriptor reader(ends[0]);
  const FileDescriptor writer(ends[1]);
  const FileDescriptor file = make_memfd(4096);
  EXPECT_EQ(set(eventfd_data | trigger, msix, 0, 1, {&ends[1], 1}), EINVAL) << "a full pipe would stop the server";
  const int number = file.get();
  EXPECT_EQ(set(eventfd_data | trigger, msix, 0, 1, {&number, 1}), EINVAL);
  const std::array<int, 2> mixed{fds[0], ends[1]};
  EXPECT_EQ(set(eventfd_data | trigger, msix, 0, 2, mixed), EINVAL);
  fire(0);
  EXPECT_EQ(take_events(fds[0]), 0U) << "nothing of a refused command has happened";
  EXPECT_EQ(open_descriptors(), before + 3);
}

TEST_F(SetIrqs, AnEventfdAtItsLimitDoesNotStopTheServer) {
  const FileDescriptor blocking(::eventfd(0, EFD_CLOEXEC));
  const std::uint64_t limit = 0xfffffffffffffffe;
  ASSERT_EQ(::write(blocking.get(), &limit, sizeof(limit)), 8);
  const int fd = blocking.get();
  ASSERT_EQ(set(eventfd_data | trigger, msix, 0, 1, {&fd, 1}), 0);
  // Even if the client makes it blocking again.
  ASSERT_EQ(::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK), 0);
  fire(0);
  EXPECT_EQ(harness.session.interrupts().dropped(), 1U);
}

TEST_F(SetIrqs, DescriptorsGoWithTheClient) {
  const std::size_t before = open_descriptors();
  ASSERT_EQ(set(eventfd_data | trigger, msix, 0, 4, first(4)), 0);
  ASSERT_EQ(set(eventfd_data | trigger, msix, 0, 4, first(4)), 0) << "replaced, not added";
  ASSERT_EQ(set(eventfd_data | mask, msix, 0, 4, first(4)), 0);
  EXPECT_EQ(open_descriptors(), before + 8);
  harness.session.close("test");
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(harness.function.sink, nullptr);
}

}  // namespace
}  // namespace orrery::bridge::test::set_irqs_test
