// What observing a TLP costs: the hash alone, and with a trace file on /dev/null.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <vector>

#include "pcie/tlp_trace.h"

namespace orrery::pcie {
namespace {

void observe(benchmark::State& state, const char* file) {
  Simulation simulation;
  const ComponentId link = simulation.names.add("link.up");
  TlpTrace trace(simulation);
  if (file != nullptr) {
    trace.open(file);
  }
  const std::vector<std::byte> payload(static_cast<std::size_t>(state.range(0)), std::byte{0x5a});
  const TlpPtr tlp = simulation.tlps.make();
  tlp->type = payload.empty() ? TlpType::MRd : TlpType::MWr;
  if (!payload.empty()) {
    tlp->store(payload);
  }
  std::uint64_t now = 0;
  for (auto _ : state) {
    tlp->address += 64;
    now += 1000;
    trace.on_link(link, *tlp, {now}, {now + 500});
  }
  benchmark::DoNotOptimize(trace.hash());
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()));
}

void BM_TraceHash(benchmark::State& state) {
  observe(state, nullptr);
}
void BM_TraceHashAndFile(benchmark::State& state) {
  observe(state, "/dev/null");
}

BENCHMARK(BM_TraceHash)->Arg(0)->Arg(4)->Arg(64)->Arg(256)->Arg(512)->Arg(4096);
BENCHMARK(BM_TraceHashAndFile)->Arg(0)->Arg(64)->Arg(256);

}  // namespace
}  // namespace orrery::pcie
