// The RNIC's data path alone: two engines over a wire without limits, guest memory as plain bytes. Both engines run
// on the one core, so a message's cost is its sender's and its receiver's together.
#include <benchmark/benchmark.h>

#include "tests/systemc_models/rnic/verbs_node.h"

namespace {

using namespace orrery;
using namespace orrery::test;

enum Kind : std::int64_t { send_kind, write_kind, read_kind };

VerbsSettings settings() {
  VerbsSettings s;
  s.sender.congestion.algorithm = fabric::CongestionAlgorithm::fixed;
  s.sender.congestion.max_window_bytes = 128U << 10;
  return s;
}

// Messages of range(1) bytes: kind range(0), 64 per doorbell, every eighth signalled.
void transfer(benchmark::State& state) {
  pcie::Simulation simulation;
  fabric::PacketPool pool;
  Node a(simulation, pool, 0, settings(), 64U << 20);
  Node b(simulation, pool, 1, settings(), 64U << 20);
  DirectPort::connect(a.wire, b.wire);
  GuestCq ca = a.make_cq(10);
  GuestCq cb = b.make_cq(10);
  GuestQp qa = a.make_qp(QpType::rc, ca, 0, 8);
  GuestQp qb = b.make_qp(QpType::rc, cb, 0, 8);
  qa.context.mtu = qb.context.mtu = 4096;
  Node::connect(a, qa, b, qb);
  const auto kind = static_cast<Kind>(state.range(0));
  const auto bytes = static_cast<std::uint32_t>(state.range(1));
  constexpr std::uint64_t area = 16U << 20;
  const std::uint64_t ma = a.allocate(area);
  const std::uint64_t mb = b.allocate(area);
  const std::uint32_t ka = a.make_key(ma, area);
  const std::uint32_t kb = b.make_key(mb, area);
  constexpr unsigned batch = 64;
  std::uint64_t messages = 0;
  for (auto _ : state) {
    for (unsigned i = 0; i < batch; ++i) {
      const std::uint64_t at = (std::uint64_t{i} * bytes) % (area - bytes + 1) & ~std::uint64_t{63};
      Wqe wqe;
      wqe.opcode = kind == send_kind ? 0x0a : (kind == write_kind ? 0x08 : 0x10);
      wqe.signalled = i % 8 == 7;
      if (kind != send_kind) {
        wqe.remote(mb + at, kb);
      } else {
        b.post_receive(qb, {{mb + at, bytes, kb}});
      }
      wqe.data({ma + at, bytes, ka});
      a.put(qa, wqe);
    }
    a.ring(qa);
    unsigned done = 0;
    while (done < batch / 8 && simulation.events.run_one()) {
      while (a.poll(ca)) {
        ++done;
      }
    }
    while (b.poll(cb)) {
    }
    if (done < batch / 8) {
      state.SkipWithError("messages are missing");
      break;
    }
    messages += batch;
  }
  state.counters["messages/s"] = benchmark::Counter(static_cast<double>(messages), benchmark::Counter::kIsRate);
  state.counters["payload"] = benchmark::Counter(static_cast<double>(messages * bytes), benchmark::Counter::kIsRate,
                                                 benchmark::Counter::kIs1000);
}
BENCHMARK(transfer)
    ->ArgNames({"kind", "bytes"})
    ->ArgsProduct({{send_kind, write_kind, read_kind}, {8, 64, 4096, 65536, 1048576}});

}  // namespace
