// The platform without a VMM: configuration space, BARs, registers, DMA, interrupts, reset. One process a TEST.
#include "systemc_models/server/platform.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "systemc_models/device_identity.h"
#include "systemc_models/rnic/rnic_registers.h"
#include "tests/systemc_models/guest_rig.h"

namespace orrery::models::platform_test {
namespace {

using pcie::MapResult;
using testing::Function;
using testing::Gpu;
using testing::memory_at;
using testing::noise;
using testing::Ram;
using testing::registers_at;
using testing::run;
using testing::Sink;
using testing::small_server;

constexpr std::uint64_t mib = 1U << 20;
constexpr std::uint64_t bar2_bytes = 8 * mib;

// ---- Configuration space --------------------------------------------------------------------------------------

class BothModes : public ::testing::TestWithParam<TimeMode> {};
INSTANTIATE_TEST_SUITE_P(Modes, BothModes, ::testing::Values(TimeMode::functional, TimeMode::timed),
                         [](const auto& instance) {
                           return instance.param == TimeMode::timed ? "Timed" : "Functional";
                         });

TEST_P(BothModes, EveryFunctionShowsWhatItIs) {
  Platform platform(small_server(GetParam()));
  EXPECT_EQ(platform.functions(), 12U);
  unsigned gpus = 0;
  for (const Topology::Endpoint& endpoint : platform.topology().endpoints) {
    Function f(platform, endpoint.name);
    const bool gpu = endpoint.kind == EndpointKind::gpu;
    gpus += gpu ? 1 : 0;
    EXPECT_EQ(f.access.name(), endpoint.name);
    EXPECT_EQ(f.config(0, 2), ORRERY_PCI_VENDOR);
    EXPECT_EQ(f.config(2, 2), gpu ? ORRERY_PCI_DEVICE_GPU : ORRERY_PCI_DEVICE_RNIC);
    EXPECT_EQ(f.config(8) >> 8, gpu ? ORRERY_PCI_CLASS_GPU : ORRERY_PCI_CLASS_RNIC);
    EXPECT_EQ(f.config(0xe, 1), 0U);
    // The list of capabilities: power management, MSI-X and PCI Express are there; it ends.
    std::array<bool, 256> found{};
    std::uint32_t at = f.config(0x34, 1);
    unsigned entries = 0;
    while (at != 0 && entries++ < 48) {
      found[f.config(at, 1)] = true;
      at = f.config(at + 1, 1);
    }
    EXPECT_TRUE(found[0x01] && found[0x10] && found[0x11]);
    EXPECT_LT(entries, 48U);
    // Device serial number, extended capability 0003h.
    std::uint32_t extended = 0x100;
    while (extended != 0 && (f.config(extended) & 0xffff) != 3) {
      extended = f.config(extended) >> 20;
    }
    ASSERT_NE(extended, 0U);
    const std::uint64_t serial = f.config(extended + 4) | static_cast<std::uint64_t>(f.config(extended + 8)) << 32;
    EXPECT_EQ(serial, orrery_serial(gpu ? ORRERY_SERIAL_KIND_GPU : ORRERY_SERIAL_KIND_RNIC, 0, endpoint.ordinal));
    EXPECT_EQ(f.access.msix_vectors(), gpu ? ORRERY_GPU_VECTOR_COUNT : ORRERY_RNIC_VECTOR_COUNT);
    // All of it can be read, at any width.
    std::vector<std::byte> whole(f.access.config_size());
    f.access.config_read(0, whole);
    for (const std::uint32_t offset : {0x1U, 0x3U, 0x41U, 0xfffU}) {
      EXPECT_EQ(f.config(offset, 1), static_cast<std::uint32_t>(whole[offset]));
    }
  }
  EXPECT_EQ(gpus, 8U);
  run(platform);
}

// Configuration accesses are TLPs over the very links of the function.
TEST(Platform, ConfigurationAccessesCrossTheLinks) {
  Platform platform(small_server());
  const auto tlps = [&](const std::string& name) {
    for (const Platform::LinkReport& link : platform.links()) {
      if (link.name == name) {
        return std::pair{link.down->tlps, link.up->tlps};
      }
    }
    return std::pair{std::uint64_t{99}, std::uint64_t{99}};
  };
  Function f(platform, "gpu2");
  const std::string above = platform.topology().switches[*platform.topology().find("gpu2")->switch_index].name;
  EXPECT_EQ(tlps("gpu2"), (std::pair<std::uint64_t, std::uint64_t>{0, 0}));
  static_cast<void>(f.config(0));
  EXPECT_EQ(tlps("gpu2"), (std::pair<std::uint64_t, std::uint64_t>{1, 1}));
  EXPECT_EQ(tlps(above), (std::pair<std::uint64_t, std::uint64_t>{1, 1}));
  EXPECT_EQ(tlps("gpu3"), (std::pair<std::uint64_t, std::uint64_t>{0, 0}));
}

// ---- BARs -----------------------------------------------------------------------------------------------------

TEST_P(BothModes, BarsAreSizedAndPlacedWhereTheGuestSays) {
  Platform platform(small_server(GetParam()));
  Function f(platform, "gpu0");
  const auto size_of = [&](std::uint32_t offset) {
    const std::uint32_t before = f.config(offset);
    f.set_config(offset, 0xffff'ffff);
    const std::uint32_t mask = f.config(offset);
    f.set_config(offset, before);
    return mask;
  };
  EXPECT_EQ(~(size_of(0x10) & ~0xfU) + 1, ORRERY_GPU_BAR0_SIZE);
  EXPECT_EQ(size_of(0x14), 0U) << "no BAR1";
  EXPECT_EQ(size_of(0x18), static_cast<std::uint32_t>(~(bar2_bytes - 1)) | 0xc) << "64-bit, prefetchable";
  EXPECT_EQ(size_of(0x1c), 0xffff'ffffU);
  EXPECT_EQ(~(size_of(0x20) & ~0xfU) + 1, ORRERY_GPU_BAR4_SIZE);
  EXPECT_EQ(size_of(0x24), 0U);
  const auto bars = f.access.bars();
  EXPECT_EQ(bars[0].size, ORRERY_GPU_BAR0_SIZE);
  EXPECT_EQ(bars[2].size, bar2_bytes);
  EXPECT_TRUE(bars[2].is_64bit && bars[2].prefetchable);
  EXPECT_GE(bars[2].memory_fd, 0);
  EXPECT_EQ(bars[4].size, ORRERY_GPU_BAR4_SIZE);

  f.set_config(0x10, 0xd000'0000);
  EXPECT_EQ(f.read(ORRERY_GPU_ID), 0xffff'ffffU) << "memory decode is off";
  f.place(registers_at(0), memory_at(0));
  EXPECT_EQ(f.config(0x10), registers_at(0));
  EXPECT_EQ(f.config(0x18), (memory_at(0) & 0xffff'ffff) | 0xc);
  EXPECT_EQ(f.config(0x1c), memory_at(0) >> 32);
  EXPECT_EQ(f.placement(0).hpa.value, registers_at(0)) << "identity: what a switch can route AT = 00b by";
  EXPECT_EQ(f.placement(2).hpa.value, memory_at(0));
  EXPECT_EQ(f.read(ORRERY_GPU_ID), ORRERY_GPU_ID_VALUE);
  EXPECT_EQ(f.read<std::uint64_t>(ORRERY_GPU_BAR2_SIZE), bar2_bytes);
  f.write(ORRERY_GPU_SCRATCH, 0x1234'5678U);
  EXPECT_EQ(f.read(ORRERY_GPU_SCRATCH), 0x1234'5678U);
  EXPECT_EQ(f.read<std::uint8_t>(ORRERY_GPU_SCRATCH + 2), 0x34);
  // Memory of any length and alignment.
  auto bytes = noise(300'001, 1);
  f.access.bar_write(2, 12'345, bytes);
  std::vector<std::byte> back(bytes.size());
  f.access.bar_read(2, 12'345, back);
  EXPECT_EQ(back, bytes);
  f.set_config(0x4, 4, 2);  // decode off
  EXPECT_EQ(f.read(ORRERY_GPU_ID), 0xffff'ffffU);
  f.set_config(0x4, 6, 2);
  EXPECT_EQ(f.read(ORRERY_GPU_ID), ORRERY_GPU_ID_VALUE);
  f.access.bar_read(2, 12'345, back);
  EXPECT_EQ(back, bytes) << "the bytes have stayed";
  run(platform);
}

TEST(Platform, BarsMayChangePlaces) {
  Platform platform(small_server());
  Function f(platform, "gpu0");
  f.place(registers_at(0), memory_at(0));
  f.set_config(0x4, 0, 2);
  // BAR0 to where BAR4 was and the other way round; BAR2 elsewhere.
  f.set_config(0x10, static_cast<std::uint32_t>(registers_at(0) + 0x1'0000));
  f.set_config(0x20, static_cast<std::uint32_t>(registers_at(0)));
  f.set_config(0x18, 0x1000'0000);
  f.set_config(0x1c, 0x90);
  f.set_config(0x4, 6, 2);
  EXPECT_EQ(f.placement(0).hpa.value, registers_at(0) + 0x1'0000);
  EXPECT_EQ(f.placement(4).hpa.value, registers_at(0));
  EXPECT_EQ(f.placement(2).hpa.value, 0x90'1000'0000U);
  EXPECT_EQ(f.read(ORRERY_GPU_ID), ORRERY_GPU_ID_VALUE);
  // Also with decode on all the time, one register after the other: BAR0 moves over BAR4's old place.
  f.set_config(0x20, static_cast<std::uint32_t>(registers_at(5)));
  f.set_config(0x10, static_cast<std::uint32_t>(registers_at(0)));
  EXPECT_EQ(f.placement(0).hpa.value, registers_at(0));
  EXPECT_EQ(f.read(ORRERY_GPU_ID), ORRERY_GPU_ID_VALUE);
}

// Two guests know nothing of each other: equal addresses, both served, no access astray.
TEST(Platform, TwoGuestsWithEqualAddresses) {
  Platform platform(small_server());
  Gpu a(platform, "gpu0");
  Gpu b(platform, "gpu1");
  platform.assign(a.index, "a");
  platform.assign(b.index, "b");
  a.place(registers_at(0), memory_at(0));
  b.place(registers_at(0), memory_at(0));
  EXPECT_EQ(a.placement(2).hpa.value, memory_at(0));
  EXPECT_NE(b.placement(2).hpa.value, memory_at(0));
  EXPECT_EQ(b.config(0x10), registers_at(0)) << "the guest sees its own address";
  EXPECT_EQ(a.read(ORRERY_GPU_INDEX), 0U);
  EXPECT_EQ(b.read(ORRERY_GPU_INDEX), 1U);
  a.write<std::uint64_t>(64, 0xaaaa, 2);
  b.write<std::uint64_t>(64, 0xbbbb, 2);
  EXPECT_EQ(a.read<std::uint64_t>(64, 2), 0xaaaaU);
  EXPECT_EQ(b.read<std::uint64_t>(64, 2), 0xbbbbU);
  // DMA at equal device addresses goes to each one's own memory.
  const Ram ram_a(4 * mib);
  const Ram ram_b(4 * mib);
  ASSERT_EQ(a.map(ram_a, 0, 0, 4 * mib), MapResult::ok);
  ASSERT_EQ(b.map(ram_b, 0, 0, 4 * mib), MapResult::ok);
  a.start_ring(ram_a, 0);
  b.start_ring(ram_b, 0);
  a.do_copy(64, false, 0x10'0000, true, 8);
  b.do_copy(64, false, 0x10'0000, true, 8);
  EXPECT_EQ(ram_a.at(0x10'0000, 1)[0], std::byte{0xaa});
  EXPECT_EQ(ram_b.at(0x10'0000, 1)[0], std::byte{0xbb});
  // Nor can one map the other's BAR.
  EXPECT_EQ(a.access.dma_map(Iova{memory_at(3)}, 4096, {true, true}, std::nullopt, nullptr), MapResult::no_peer);
}

// A guest may write any address into a BAR: where DRAM is or will be, over the interrupt window, at the very top.
TEST(Platform, HostileBarAddressesHarmNobody) {
  Platform platform(small_server());
  Gpu hostile(platform, "gpu0");
  Gpu victim(platform, "gpu1");
  platform.assign(hostile.index, "h");
  platform.assign(victim.index, "v");
  for (const std::uint64_t address :
       {Dram::base(0), Dram::base(1), Dram::base(0) - bar2_bytes / 2, std::uint64_t{1} << 49,
        std::uint64_t{0xffff'ffff'ff80'0000}, std::uint64_t{0xfe80'0000}}) {
    hostile.set_config(0x4, 0, 2);
    hostile.place(registers_at(0), address);
    const auto& placement = hostile.placement(2);
    if (placement.placed) {
      EXPECT_TRUE(placement.hpa.value + bar2_bytes <= 0xfee0'0000 || placement.hpa.value >= 0xfef0'0000);
      EXPECT_TRUE(placement.hpa.value + bar2_bytes <= Dram::base(0) || placement.hpa.value >= Dram::base(4));
      hostile.write<std::uint32_t>(0, 0x6666, 2);
      EXPECT_EQ(hostile.read<std::uint32_t>(0, 2), 0x6666U);
    }
    // The victim comes afterwards: frames, DMA, interrupts.
    const Ram ram(4 * mib);
    victim.place(registers_at(1), memory_at(1));
    ASSERT_EQ(victim.map(ram, 0, 0, 4 * mib), MapResult::ok);
    Sink sink;
    victim.access.set_interrupt_sink(&sink);
    victim.start_ring(ram, 0);
    auto command = Gpu::copy(0x1000, false, 0x20'0000, true, 4096);
    command.flags |= ORRERY_GPU_FLAG_INTERRUPT;
    command.vector = 3;
    victim.write<std::uint64_t>(0x1000, 0x7777'7777'7777'7777, 2);
    victim.submit(command);
    run(platform);
    EXPECT_EQ(ram.at(0x20'0000, 1)[0], std::byte{0x77}) << std::hex << address;
    EXPECT_EQ(sink.vectors, std::vector<unsigned>{3});
    victim.access.disconnect();
    EXPECT_EQ(platform.dram().mapped_bytes(), 0U);
  }
}

// ---- DMA address space ----------------------------------------------------------------------------------------

TEST(PlatformDma, MapAndUnmapResults) {
  Platform platform(small_server());
  Function f(platform, "gpu0");
  const Ram ram(16 * mib);
  const pcie::DomainId domain = platform.iommu().domain_of(platform.topology().find("gpu0")->bdf);
  const std::uint32_t tables_before = platform.iommu().table(domain).table_pages();
  EXPECT_EQ(f.map(ram, 0x1000, 0, 0), MapResult::invalid);
  EXPECT_EQ(f.map(ram, 0x1001, 0, 4096), MapResult::invalid);
  EXPECT_EQ(f.map(ram, 0x1000, 0, 4095), MapResult::invalid);
  EXPECT_EQ(f.map(ram, 0x1000, 0, 4096, {false, false}), MapResult::invalid);
  EXPECT_EQ(f.map(ram, ~std::uint64_t{0} - 4095, 0, 8192), MapResult::invalid);
  EXPECT_EQ(f.map(ram, std::uint64_t{1} << 48, 0, 4096), MapResult::invalid) << "beyond 48 bits";
  EXPECT_EQ(f.map(ram, 0, 2048, 4096), MapResult::invalid) << "a window must begin at a page";
  EXPECT_EQ(f.map(ram, 0, 0, 32 * mib), MapResult::io_error) << "longer than the file";
  EXPECT_EQ(f.access.dma_map(Iova{0}, 4096, {true, true}, pcie::FileWindow{-1, 0}, nullptr), MapResult::io_error);
  EXPECT_EQ(f.access.dma_map(Iova{0}, 4096, {true, true}, std::nullopt, nullptr), MapResult::no_peer);
  EXPECT_EQ(f.access.dma_unmap(Iova{0}, 4096), MapResult::not_found);
  EXPECT_EQ(f.access.dma_unmap(Iova{0}, 0), MapResult::invalid);
  EXPECT_EQ(platform.dram().mapped_bytes(), 0U) << "whatever was refused left nothing mapped";

  EXPECT_EQ(f.map(ram, 0x10'0000, 0, mib), MapResult::ok);
  EXPECT_EQ(f.map(ram, 0x30'0000, mib, mib), MapResult::ok);
  EXPECT_EQ(platform.dram().mapped_bytes(), 16 * mib) << "once";
  for (const auto& [iova, size] : {std::pair<std::uint64_t, std::uint64_t>{0x10'0000, 4096},
                                   {0x1f'f000, 4096},
                                   {0xf'f000, 8192},
                                   {0x1f'f000, 2 * mib},
                                   {0, 16 * mib},
                                   {0x18'0000, 4096}}) {
    EXPECT_EQ(f.map(ram, iova, 0, size), MapResult::overlap) << iova;
  }
  EXPECT_EQ(f.map(ram, 0x20'0000, 0, mib), MapResult::ok) << "the gap, exactly";
  // A hole in the middle of one mapping, over the border of two, and what is left.
  EXPECT_EQ(f.access.dma_unmap(Iova{0x14'0000}, 4096), MapResult::ok);
  EXPECT_EQ(f.access.dma_unmap(Iova{0x14'0000}, 4096), MapResult::not_found);
  EXPECT_EQ(f.access.dma_unmap(Iova{0x1f'f000}, 8192), MapResult::ok);
  EXPECT_EQ(f.map(ram, 0x14'0000, 8 * mib, 4096), MapResult::ok) << "free again";
  EXPECT_EQ(f.map(ram, 0x1f'e000, 8 * mib, 4096), MapResult::overlap);
  EXPECT_EQ(platform.iommu().table(domain).mapped_bytes(), 3 * mib - 8192);
  EXPECT_EQ(f.access.dma_unmap(Iova{0}, 16 * mib), MapResult::ok) << "all at once, holes and all";
  EXPECT_EQ(platform.iommu().table(domain).mapped_bytes(), 0U);
  EXPECT_EQ(platform.dram().mapped_bytes(), 0U);
  EXPECT_LE(platform.iommu().table(domain).table_pages(), tables_before + 1) << "at most the root is kept";
}

// Random maps and unmaps against a page-by-page model; DRAM's users are counted right to the end.
TEST(PlatformDma, RandomHistoriesAgainstAModelOfPages) {
  Platform platform(small_server());
  Function f(platform, "rnic0");
  const pcie::Bdf bdf = platform.topology().find("rnic0")->bdf;
  const Ram one(4 * mib);
  const Ram two(4 * mib);
  constexpr std::uint64_t pages = 256;
  std::vector<int> model(pages, -1);  // -1, or file * 1024 + page of the file
  std::mt19937_64 random(4);
  std::array<std::uint64_t, 2> base{};
  for (int step = 0; step < 3000 && !::testing::Test::HasFailure(); ++step) {
    const std::uint64_t first = random() % pages;
    const std::uint64_t count = 1 + random() % std::min<std::uint64_t>(pages - first, 40);
    bool any = false;
    for (std::uint64_t p = first; p < first + count; ++p) {
      any = any || model[p] >= 0;
    }
    if (random() % 2 == 0) {
      const unsigned file = random() % 2;
      const std::uint64_t from = random() % (1024 - count);
      const MapResult result = f.map(file == 0 ? one : two, first * 4096, from * 4096, count * 4096);
      ASSERT_EQ(result, any ? MapResult::overlap : MapResult::ok);
      if (!any) {
        for (std::uint64_t p = 0; p < count; ++p) {
          model[first + p] = static_cast<int>(file * 1024 + from + p);
        }
      }
    } else {
      const MapResult result = f.access.dma_unmap(Iova{first * 4096}, count * 4096);
      ASSERT_EQ(result, any ? MapResult::ok : MapResult::not_found);
      for (std::uint64_t p = first; p < first + count; ++p) {
        model[p] = -1;
      }
    }
    std::array<bool, 2> used{};
    for (std::uint64_t p = 0; p < pages; ++p) {
      const pcie::Translation t = platform.iommu().probe({bdf, Iova{p * 4096}, 4096, pcie::DmaDirection::write, {}});
      ASSERT_EQ(t.ok(), model[p] >= 0) << step << " page " << p;
      if (t.ok()) {
        const auto file = static_cast<unsigned>(model[p]) / 1024;
        used[file] = true;
        const auto window = platform.dram().find(t.address);
        ASSERT_EQ(window.kind, pcie::HostMemory::Kind::direct);
        base[file] = t.address.value - static_cast<std::uint64_t>(model[p] % 1024) * 4096;
        if (step % 50 == 0) {
          // The very byte of the file.
          const Ram& ram = file == 0 ? one : two;
          ram.at(static_cast<std::uint64_t>(model[p] % 1024) * 4096, 1)[0] = static_cast<std::byte>(p);
          ASSERT_EQ(window.bytes[0], static_cast<std::byte>(p));
        }
      }
    }
    ASSERT_EQ(platform.dram().mapped_bytes(), (used[0] ? 4 * mib : 0) + (used[1] ? 4 * mib : 0)) << step;
  }
  f.access.dma_unmap_all();
  EXPECT_EQ(platform.dram().mapped_bytes(), 0U);
}

// ---- Copies ---------------------------------------------------------------------------------------------------

// Host -> GPU -> peer GPU -> host, random data, below one switch and across switches, ACS off / default / 5Dh.
TEST_P(BothModes, CopiesOverPeersDirectAndRedirected) {
  Platform platform(small_server(GetParam()));
  const Ram ram(16 * mib);
  std::vector<Gpu> gpus;
  for (unsigned i = 0; i < 8; ++i) {
    gpus.emplace_back(platform, "gpu" + std::to_string(i));
    gpus[i].place(registers_at(i), memory_at(i));
  }
  for (unsigned i = 0; i < 8; ++i) {
    ASSERT_EQ(gpus[i].map(ram, 0, 0, 16 * mib), MapResult::ok);
    for (unsigned peer = 0; peer < 8; ++peer) {
      ASSERT_EQ(gpus[i].access.dma_map(Iova{memory_at(peer)}, bar2_bytes, {true, true}, std::nullopt, nullptr),
                MapResult::ok);
    }
    gpus[i].start_ring(ram, i * 0x1000);
  }
  const auto totals = [&] {
    std::array<std::uint64_t, 3> sum{};
    for (std::size_t s = 0; s < platform.topology().switches.size(); ++s) {
      sum[0] += platform.switch_counters(s).peer_to_peer;
      sum[1] += platform.switch_counters(s).redirected;
    }
    sum[2] = platform.root_complex_counters().peer_to_peer;
    return sum;
  };
  const auto same_switch = [&](unsigned a, unsigned b) {
    const Topology& t = platform.topology();
    return t.find("gpu" + std::to_string(a))->switch_index == t.find("gpu" + std::to_string(b))->switch_index;
  };
  std::uint64_t seed = 1;
  for (const std::uint16_t acs : {0x1d, 0x00, 0x5d}) {
    for (std::size_t s = 0; s < platform.topology().switches.size(); ++s) {
      platform.set_acs(s, acs);
    }
    for (const auto& [from, to] : {std::pair{0U, 1U}, std::pair{1U, 2U}, std::pair{7U, 0U}}) {
      const std::uint64_t length = 60'000 + seed * 777;
      const auto bytes = noise(length, seed++);
      ram.put(0x20'0000 + 3, bytes);
      std::fill_n(ram.at(0x80'0000, 4 * mib).begin(), 4 * mib, std::byte{0xcd});
      gpus[from].do_copy(0x20'0003, true, 0x1001, false, length);
      const auto before = totals();
      gpus[from].do_copy(0x1001, false, memory_at(to) + 0x2005, true, length);
      const auto after = totals();
      const std::uint64_t direct = after[0] - before[0];
      const std::uint64_t redirected = after[1] - before[1];
      const std::uint64_t hairpin = after[2] - before[2];
      // Writes of 256 bytes and a flush a page, from an odd address on.
      const std::uint64_t tlps = pcie::tlps_needed(memory_at(to) + 0x2005, length, 256);
      const std::uint64_t flushes = pcie::tlps_needed(memory_at(to) + 0x2005, length, 4096);
      if (!same_switch(from, to)) {
        EXPECT_EQ(direct + redirected, 0U);
        EXPECT_EQ(hairpin, tlps + flushes);
      } else if (acs == 0) {
        EXPECT_EQ(direct, tlps + 2 * flushes) << "completions, too";
        EXPECT_EQ(hairpin, 0U) << "nothing passes the root complex";
      } else {
        // AT = 00b: redirected by 1Dh and 5Dh alike; so are the completions of the flushes.
        EXPECT_EQ(redirected, tlps + 2 * flushes);
        EXPECT_EQ(direct, 0U);
        EXPECT_EQ(hairpin, tlps + flushes);
      }
      gpus[to].do_copy(0x2005, false, 0x80'0000 + 11, true, length);
      const auto out = ram.at(0x80'0000 + 11, length);
      EXPECT_TRUE(std::equal(out.begin(), out.end(), bytes.begin()));
      EXPECT_EQ(ram.at(0x80'0000 + 10, 1)[0], std::byte{0xcd});
      EXPECT_EQ(ram.at(0x80'0000 + 11 + length, 1)[0], std::byte{0xcd});
    }
  }
  EXPECT_EQ(platform.iommu().fault_total(), 0U);
}

// ---- Faults ---------------------------------------------------------------------------------------------------

// One page goes while a copy runs. The engine reports the page, the IOMMU has a record, no byte strays.
TEST(PlatformFaults, UnmappingAPageOfARunningDma) {
  Platform platform(small_server(TimeMode::timed));
  const Ram ram(16 * mib);
  Gpu gpu(platform, "gpu4");
  gpu.place(registers_at(0), memory_at(0));
  ASSERT_EQ(gpu.map(ram, 0, 0, 16 * mib), MapResult::ok);
  gpu.start_ring(ram, 0);
  const auto bytes = noise(8 * mib, 3);
  gpu.access.bar_write(2, 0, bytes);
  std::fill_n(ram.at(mib, 15 * mib).begin(), 15 * mib, std::byte{0xcd});
  Sink sink;
  gpu.access.set_interrupt_sink(&sink);
  gpu.submit(Gpu::copy(0, false, 2 * mib, true, 8 * mib));
  // Some way into it.
  while (ram.at(3 * mib, 1)[0] == std::byte{0xcd} && ram.at(3 * mib + 1, 1)[0] == std::byte{0xcd}) {
    ASSERT_NE(platform.next_activity(), Picoseconds::max());
    platform.advance(platform.next_activity(), 0);
  }
  const std::uint64_t page = 6 * mib;
  ASSERT_EQ(ram.at(page, 1)[0], std::byte{0xcd}) << "the copy was to be at 3 MiB";
  ASSERT_EQ(gpu.access.dma_unmap(Iova{page}, 4096), MapResult::ok);
  run(platform);
  EXPECT_EQ(gpu.read(ORRERY_GPU_ENGINE_STATUS), ORRERY_GPU_STATUS_ERROR);
  EXPECT_EQ(gpu.read(ORRERY_GPU_ERROR_CODE), ORRERY_GPU_ERROR_DMA_WRITE);
  EXPECT_EQ(gpu.read<std::uint64_t>(ORRERY_GPU_ERROR_ADDRESS), page);
  EXPECT_EQ(gpu.read(ORRERY_GPU_ERROR_COMPLETION), 1U);
  EXPECT_EQ(sink.vectors, std::vector<unsigned>{ORRERY_GPU_VECTOR_ERROR});
  ASSERT_GT(platform.iommu().faults_recorded(), 0U);
  while (const auto fault = platform.iommu().take_fault()) {
    EXPECT_EQ(fault->requester, platform.topology().find("gpu4")->bdf);
    EXPECT_EQ(fault->address.value / 4096, page / 4096);
    EXPECT_EQ(fault->reason, pcie::IommuFaultReason::not_present);
  }
  for (std::uint64_t i = mib; i < 16 * mib; ++i) {
    const std::byte got = ram.at(i, 1)[0];
    const bool target = i >= 2 * mib && i < 10 * mib && i / 4096 != page / 4096;
    ASSERT_TRUE(got == std::byte{0xcd} || (target && got == bytes[i - 2 * mib])) << i;
  }
  // A reset of the engine, and it works again.
  gpu.write(ORRERY_GPU_ENGINE_CONTROL, ORRERY_GPU_CONTROL_RESET);
  gpu.start_ring(ram, 0);
  gpu.do_copy(0, false, 2 * mib, true, 4096);
}

// Vectors come as numbers that a device writes: only those that exist reach the VMM.
TEST(PlatformFaults, OnlyVectorsThatExistReachTheSink) {
  Platform platform(small_server());
  const Ram ram(4 * mib);
  Gpu gpu(platform, "gpu0");
  gpu.place(registers_at(0), memory_at(0));
  ASSERT_EQ(gpu.map(ram, 0, 0, 4 * mib), MapResult::ok);
  gpu.start_ring(ram, 0);
  Sink sink;
  gpu.access.set_interrupt_sink(&sink);
  // The message goes out; the flush behind it faults, since nothing is mapped there for reads.
  const auto send_there = [&](std::uint64_t length) {
    gpu.write(ORRERY_GPU_INTERRUPT_ENABLE, 0U);
    gpu.submit(Gpu::copy(0x100, false, 0xfee0'0000, true, length));
    run(platform);
    EXPECT_EQ(gpu.read(ORRERY_GPU_ERROR_CODE), ORRERY_GPU_ERROR_DMA_WRITE);
    gpu.write(ORRERY_GPU_ENGINE_CONTROL, ORRERY_GPU_CONTROL_RESET);
    gpu.start_ring(ram, 0);
  };
  for (const std::uint32_t data : {31U, 32U, 0xffff'ffffU, 0U}) {
    gpu.write(0x100, data, 2);
    send_there(4);
  }
  send_there(4096);  // no message at all
  EXPECT_EQ(sink.vectors, (std::vector<unsigned>{31, 0}));
  auto command = Gpu::copy(0x100, false, 0x1'0000, true, 64);
  command.flags |= ORRERY_GPU_FLAG_INTERRUPT;
  command.vector = 9;
  gpu.submit(command);
  run(platform);
  EXPECT_EQ(sink.vectors.back(), 9U);
  gpu.access.set_interrupt_sink(nullptr);
  gpu.submit(command);
  run(platform);
  EXPECT_EQ(sink.vectors.size(), 3U) << "detached: dropped";
}

}  // namespace
}  // namespace orrery::models::platform_test
