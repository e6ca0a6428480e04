#include "pcie/iommu.h"

#include <vector>

#include <gtest/gtest.h>

#include "common/error.h"
#include "pcie/page_table_pool.h"

namespace orrery::pcie::iommu_test {
namespace {

using namespace orrery::time_literals;

constexpr std::uint64_t page = 0x1000;
constexpr Bdf rnic = Bdf::of(0x41, 0, 0);
constexpr Bdf gpu = Bdf::of(0x42, 0, 0);
constexpr DmaAccess read_write{.read = true, .write = true};

struct IommuTest : ::testing::Test, IommuFaultObserver {
  PageTablePool memory{Hpa{0x7f00'0000}, 1024};
  Iommu iommu{memory, {.table = {.host_address_bits = 46, .largest_page_shift = 30}, .fault_records = 4}};
  std::vector<IommuFault> seen;

  IommuTest() { iommu.set_fault_observer(this); }
  void on_iommu_fault(const IommuFault& fault) override { seen.push_back(fault); }

  DomainId attached(Bdf requester, DomainMode mode) {
    const DomainId domain = iommu.create_domain(mode).value();
    EXPECT_TRUE(iommu.attach(requester, domain));
    return domain;
  }
  Translation read(Bdf requester, std::uint64_t at, std::uint64_t length = 1, Picoseconds now = {}) {
    return iommu.translate({requester, Iova{at}, length, DmaDirection::read, now});
  }
  Translation write(Bdf requester, std::uint64_t at, std::uint64_t length = 1, Picoseconds now = {}) {
    return iommu.translate({requester, Iova{at}, length, DmaDirection::write, now});
  }
};

TEST_F(IommuTest, TranslatesByRequesterId) {
  const DomainId a = attached(rnic, DomainMode::translated);
  const DomainId b = attached(gpu, DomainMode::translated);
  ASSERT_EQ(iommu.map(a, Iova{0x5000}, Hpa{0x10'0000}, page, read_write), PageTableStatus::ok);
  ASSERT_EQ(iommu.map(b, Iova{0x5000}, Hpa{0x20'0000}, page, {.read = true, .write = false}), PageTableStatus::ok);
  EXPECT_EQ(read(rnic, 0x5123).address, Hpa{0x10'0123});
  EXPECT_EQ(read(gpu, 0x5123).address, Hpa{0x20'0123});
  EXPECT_EQ(read(rnic, 0x5123).domain, a);
  EXPECT_EQ(read(rnic, 0x5123, 0x2000).bytes, page - 0x123);
  EXPECT_EQ(read(rnic, 0x5123).steps, 4U);
  EXPECT_TRUE(read(rnic, 0x5123).writable);
  EXPECT_FALSE(read(gpu, 0x5123).writable);
  // One function moves; its neighbours don't.
  ASSERT_TRUE(iommu.attach(gpu, a));
  EXPECT_EQ(read(gpu, 0x5123).address, Hpa{0x10'0123});
  iommu.detach(gpu);
  EXPECT_EQ(read(gpu, 0x5123).fault, IommuFaultReason::no_domain);
  EXPECT_TRUE(read(rnic, 0x5123).ok());
}

TEST_F(IommuTest, EveryRequesterIdIsItsOwn) {
  const DomainId domain = attached(Bdf{0}, DomainMode::passthrough);
  ASSERT_TRUE(iommu.attach(Bdf{0xffff}, domain));
  unsigned without = 0;
  for (unsigned id = 0; id < 65536; ++id) {
    const TranslationRequest request{Bdf{static_cast<std::uint16_t>(id)}, Iova{0}, 1, DmaDirection::read, {}};
    without += iommu.probe(request).fault == IommuFaultReason::no_domain ? 1 : 0;
  }
  EXPECT_EQ(without, 65534U);
}

TEST_F(IommuTest, EveryFaultReason) {
  const DomainId domain = attached(rnic, DomainMode::translated);
  ASSERT_EQ(iommu.map(domain, Iova{0}, Hpa{0}, page, {.read = true, .write = false}), PageTableStatus::ok);
  ASSERT_EQ(iommu.map(domain, Iova{page}, Hpa{0}, page, {.read = false, .write = true}), PageTableStatus::ok);
  attached(gpu, DomainMode::blocked);
  const Bdf pass = Bdf::of(1, 0, 0);
  attached(pass, DomainMode::passthrough);

  EXPECT_EQ(read(Bdf{7}, 0).fault, IommuFaultReason::no_domain);
  EXPECT_EQ(read(gpu, 0).fault, IommuFaultReason::blocked);
  EXPECT_EQ(read(rnic, std::uint64_t{1} << 48).fault, IommuFaultReason::address_width);
  EXPECT_EQ(read(pass, std::uint64_t{1} << 46).fault, IommuFaultReason::address_width);
  EXPECT_EQ(read(rnic, 2 * page).fault, IommuFaultReason::not_present);
  EXPECT_EQ(read(rnic, page).fault, IommuFaultReason::read_permission);
  EXPECT_EQ(write(rnic, 0).fault, IommuFaultReason::write_permission);

  const Hpa root = iommu.table(domain).root().value();
  const std::uint64_t good = memory.read64(root).value();
  memory.write64(root, good | std::uint64_t{1} << 46U);
  EXPECT_EQ(read(rnic, 0).fault, IommuFaultReason::malformed_entry);
  memory.write64(root, 0x1003);
  EXPECT_EQ(read(rnic, 0).fault, IommuFaultReason::table_access);
  memory.write64(root, good);
  EXPECT_TRUE(read(rnic, 0).ok());

  ASSERT_EQ(seen.size(), 9U);
  const IommuFaultReason order[] = {
      IommuFaultReason::no_domain,        IommuFaultReason::blocked,         IommuFaultReason::address_width,
      IommuFaultReason::address_width,    IommuFaultReason::not_present,     IommuFaultReason::read_permission,
      IommuFaultReason::write_permission, IommuFaultReason::malformed_entry, IommuFaultReason::table_access};
  for (std::size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].reason, order[i]) << i;
  }
  for (const IommuFaultReason reason : order) {
    EXPECT_STRNE(name(reason), "?");
  }
}

TEST_F(IommuTest, FaultRecordSaysWhoWhereAndWhen) {
  const DomainId domain = attached(rnic, DomainMode::translated);
  const Translation result = write(rnic, 0xdead'b123, 64, 77_us);
  EXPECT_EQ(result.bytes, 0U);
  const IommuFault fault = iommu.take_fault().value();
  EXPECT_EQ(fault.requester, rnic);
  EXPECT_EQ(fault.domain, domain);
  EXPECT_EQ(fault.address, Iova{0xdead'b123});
  EXPECT_EQ(fault.direction, DmaDirection::write);
  EXPECT_EQ(fault.reason, IommuFaultReason::not_present);
  EXPECT_EQ(fault.time, 77_us);
  EXPECT_FALSE(iommu.take_fault());
}

TEST_F(IommuTest, FaultRingKeepsTheOldestAndFlagsOverflow) {
  for (std::uint64_t i = 0; i < 4; ++i) {
    read(rnic, i);
  }
  EXPECT_EQ(iommu.faults_recorded(), 4U);
  EXPECT_FALSE(iommu.fault_overflow()) << "exactly full";
  read(rnic, 4);
  read(rnic, 5);
  EXPECT_TRUE(iommu.fault_overflow());
  EXPECT_EQ(iommu.fault_total(), 6U);
  EXPECT_EQ(seen.size(), 6U) << "the observer hears of lost records too";
  EXPECT_EQ(iommu.take_fault()->address, Iova{0});
  read(rnic, 6);  // goes round the end of the ring
  for (const std::uint64_t expected : {1U, 2U, 3U, 6U}) {
    EXPECT_EQ(iommu.take_fault()->address, Iova{expected});
  }
  EXPECT_FALSE(iommu.take_fault());
  EXPECT_TRUE(iommu.fault_overflow()) << "stays until cleared";
  iommu.clear_fault_overflow();
  EXPECT_FALSE(iommu.fault_overflow());
}

TEST_F(IommuTest, ProbeLeavesNoTrace) {
  const TranslationRequest request{rnic, Iova{0}, 1, DmaDirection::read, {}};
  EXPECT_EQ(iommu.probe(request).fault, IommuFaultReason::no_domain);
  EXPECT_EQ(iommu.fault_total(), 0U);
  EXPECT_TRUE(seen.empty());
}

TEST_F(IommuTest, Passthrough) {
  attached(rnic, DomainMode::passthrough);
  const std::uint64_t last = (std::uint64_t{1} << 46) - 16;
  const Translation t = write(rnic, last, 64);
  EXPECT_EQ(t.address, Hpa{last});
  EXPECT_EQ(t.bytes, 16U) << "up to the end of the host's address space";
  EXPECT_EQ(t.steps, 0U);
  EXPECT_EQ(write(rnic, 5, 1 << 20).bytes, 1U << 20);
  EXPECT_EQ(write(rnic, 5, 0).bytes, 1U);
  EXPECT_EQ(write(rnic, ~std::uint64_t{0}, ~std::uint64_t{0}).fault, IommuFaultReason::address_width);
}

TEST_F(IommuTest, ModesSwitchAndKeepTheMappings) {
  const DomainId domain = attached(rnic, DomainMode::translated);
  ASSERT_EQ(iommu.map(domain, Iova{0}, Hpa{0x9000}, page, read_write), PageTableStatus::ok);
  const std::uint64_t before = iommu.generation(domain);
  ASSERT_TRUE(iommu.set_mode(domain, DomainMode::blocked));
  EXPECT_EQ(read(rnic, 0).fault, IommuFaultReason::blocked);
  ASSERT_TRUE(iommu.set_mode(domain, DomainMode::passthrough));
  EXPECT_EQ(read(rnic, 0).address, Hpa{0});
  ASSERT_TRUE(iommu.set_mode(domain, DomainMode::translated));
  EXPECT_EQ(read(rnic, 0).address, Hpa{0x9000});
  EXPECT_EQ(iommu.generation(domain), before + 3);
  ASSERT_TRUE(iommu.set_mode(domain, DomainMode::translated));
  EXPECT_EQ(iommu.generation(domain), before + 3) << "no change, no new generation";
}

TEST_F(IommuTest, GenerationCountsWhatMakesACacheWrong) {
  const DomainId domain = attached(rnic, DomainMode::translated);
  const std::uint64_t start = iommu.generation(domain);
  ASSERT_EQ(iommu.map(domain, Iova{0}, Hpa{0}, 4 * page, read_write), PageTableStatus::ok);
  EXPECT_EQ(iommu.generation(domain), start) << "a new mapping contradicts nothing";
  ASSERT_EQ(iommu.unmap(domain, Iova{8 * page}, page), PageTableStatus::ok);
  EXPECT_EQ(iommu.generation(domain), start) << "a hole was unmapped";
  ASSERT_EQ(iommu.unmap(domain, Iova{page}, page), PageTableStatus::ok);
  EXPECT_EQ(iommu.generation(domain), start + 1);
  ASSERT_TRUE(iommu.destroy_domain(domain));
  const DomainId again = iommu.create_domain(DomainMode::translated).value();
  EXPECT_EQ(again, domain) << "numbers are used again";
  EXPECT_GT(iommu.generation(again), start + 1) << "but not generations";
}

TEST_F(IommuTest, DestroyedDomainLeavesNothingBehind) {
  const DomainId domain = attached(rnic, DomainMode::translated);
  ASSERT_TRUE(iommu.attach(gpu, domain));
  ASSERT_EQ(iommu.map(domain, Iova{0}, Hpa{0}, 1024 * page, read_write), PageTableStatus::ok);
  EXPECT_GT(memory.pages_in_use(), 0U);
  ASSERT_TRUE(iommu.destroy_domain(domain));
  EXPECT_EQ(memory.pages_in_use(), 0U);
  EXPECT_EQ(iommu.domain_count(), 0U);
  EXPECT_FALSE(iommu.exists(domain));
  EXPECT_EQ(read(rnic, 0).fault, IommuFaultReason::no_domain);
  EXPECT_EQ(read(gpu, 0).fault, IommuFaultReason::no_domain);
  // The next owner of the number doesn't inherit the requesters.
  const DomainId next = iommu.create_domain(DomainMode::passthrough).value();
  EXPECT_EQ(next, domain);
  EXPECT_EQ(read(rnic, 0).fault, IommuFaultReason::no_domain);
}

TEST_F(IommuTest, NumbersThatAreNoDomain) {
  for (const DomainId id : {DomainId{0}, DomainId{1}, DomainId{0xffff}}) {
    EXPECT_FALSE(iommu.exists(id));
    EXPECT_FALSE(iommu.attach(rnic, id));
    EXPECT_FALSE(iommu.set_mode(id, DomainMode::blocked));
    EXPECT_FALSE(iommu.destroy_domain(id));
    EXPECT_EQ(iommu.map(id, Iova{0}, Hpa{0}, page, read_write), PageTableStatus::invalid);
    EXPECT_EQ(iommu.unmap(id, Iova{0}, page), PageTableStatus::invalid);
  }
  EXPECT_EQ(iommu.domain_of(rnic), DomainId{});
}

TEST_F(IommuTest, DomainsRunOutCleanly) {
  std::vector<DomainId> all;
  while (const auto id = iommu.create_domain(DomainMode::blocked)) {
    all.push_back(*id);
  }
  EXPECT_EQ(all.size(), 65535U);
  ASSERT_TRUE(iommu.destroy_domain(all[1000]));
  EXPECT_EQ(iommu.create_domain(DomainMode::blocked), all[1000]);
}

TEST_F(IommuTest, DomainMayDieInTheFaultCallback) {
  struct Destroyer final : IommuFaultObserver {
    Iommu* iommu = nullptr;
    DomainId domain;
    void on_iommu_fault(const IommuFault&) override { iommu->destroy_domain(domain); }
  } destroyer;
  destroyer.iommu = &iommu;
  destroyer.domain = attached(rnic, DomainMode::translated);
  iommu.set_fault_observer(&destroyer);
  EXPECT_EQ(read(rnic, 0).fault, IommuFaultReason::not_present);
  EXPECT_EQ(read(rnic, 0).fault, IommuFaultReason::no_domain);
}

TEST(IommuConfig, OutOfRange) {
  PageTablePool memory(Hpa{0}, 1);
  EXPECT_THROW(Iommu(memory, {.table = {}, .fault_records = 0}), Error);
  EXPECT_THROW(Iommu(memory, {.table = {}, .fault_records = 65537}), Error);
  EXPECT_THROW(Iommu(memory, {.table = {.host_address_bits = 60, .largest_page_shift = 30}, .fault_records = 1}),
               Error);
}

}  // namespace
}  // namespace orrery::pcie::iommu_test
