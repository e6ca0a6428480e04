// What one IOMMU translation costs: no IOTLB, every call walks its page table in modelled memory.
#include <cstdint>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "pcie/iommu.h"
#include "pcie/page_table_pool.h"

namespace {

using namespace orrery;
using namespace orrery::pcie;

constexpr Bdf requester = Bdf::of(0x41, 0, 0);
constexpr DmaAccess read_write{.read = true, .write = true};

struct Setup {
  PageTablePool memory{Hpa{0x100'0000'0000}, 1U << 18};
  Iommu iommu;
  DomainId domain;

  explicit Setup(unsigned largest_page_shift)
      : iommu(memory,
              {.table = {.host_address_bits = 46, .largest_page_shift = largest_page_shift}, .fault_records = 256}),
        domain(iommu.create_domain(DomainMode::translated).value()) {
    iommu.attach(requester, domain);
  }
};

// Random single-TLP reads over a window of `bytes`; arguments: page shift, window in MiB.
void translate(benchmark::State& state) {
  const auto shift = static_cast<unsigned>(state.range(0));
  const std::uint64_t bytes = static_cast<std::uint64_t>(state.range(1)) << 20U;
  Setup setup(shift);
  setup.iommu.map(setup.domain, Iova{0x4000'0000}, Hpa{0x8000'0000}, bytes, read_write);
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> addresses(4096);
  for (std::uint64_t& address : addresses) {
    address = 0x4000'0000 + (random() % bytes & ~std::uint64_t{63});
  }
  std::size_t next = 0;
  for (auto _ : state) {
    Translation t = setup.iommu.translate({requester, Iova{addresses[next++ & 4095U]}, 64, DmaDirection::read, {}});
    benchmark::DoNotOptimize(t.address.value);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(translate)->Args({12, 2})->Args({12, 64})->Args({12, 1024})->Args({21, 1024})->Args({30, 1024});

// A burst of 1 MiB of 4 KiB pages in one call.
void translate_burst(benchmark::State& state) {
  Setup setup(12);
  setup.iommu.map(setup.domain, Iova{0x4000'0000}, Hpa{0x8000'0000}, 64U << 20U, read_write);
  std::uint64_t at = 0;
  for (auto _ : state) {
    Translation t = setup.iommu.translate({requester, Iova{0x4000'0000 + at}, 1U << 20U, DmaDirection::write, {}});
    benchmark::DoNotOptimize(t.bytes);
    at = (at + (1U << 20U)) & ((64U << 20U) - 1);
  }
  state.SetBytesProcessed(state.iterations() << 20U);
}
BENCHMARK(translate_burst);

void passthrough(benchmark::State& state) {
  Setup setup(12);
  setup.iommu.set_mode(setup.domain, DomainMode::passthrough);
  std::uint64_t at = 0;
  for (auto _ : state) {
    Translation t = setup.iommu.translate({requester, Iova{at += 64}, 64, DmaDirection::read, {}});
    benchmark::DoNotOptimize(t.address.value);
  }
}
BENCHMARK(passthrough);

// Map and unmap one page of the given size beside others; argument: page shift.
void map_unmap(benchmark::State& state) {
  const std::uint64_t size = std::uint64_t{1} << static_cast<unsigned>(state.range(0));
  Setup setup(30);
  setup.iommu.map(setup.domain, Iova{0}, Hpa{size}, size, read_write);
  for (auto _ : state) {
    setup.iommu.map(setup.domain, Iova{2 * size}, Hpa{size}, size, read_write);
    setup.iommu.unmap(setup.domain, Iova{2 * size}, size);
  }
}
BENCHMARK(map_unmap)->Arg(12)->Arg(21)->Arg(30);

// 1 GiB of 4 KiB pages in one call each.
void map_unmap_gibibyte_of_small_pages(benchmark::State& state) {
  Setup setup(12);
  for (auto _ : state) {
    setup.iommu.map(setup.domain, Iova{0}, Hpa{0}, 1U << 30U, read_write);
    setup.iommu.unmap(setup.domain, Iova{0}, 1U << 30U);
  }
}
BENCHMARK(map_unmap_gibibyte_of_small_pages)->Unit(benchmark::kMillisecond);

}  // namespace
