// Fuzz target: what a guest can write into its queues. Send and receive queues, SRQ, doorbell records and rung
// doorbells of hostile content: no access leaves the guest's memory or the keys' regions, nothing hangs, nothing leaks.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "tests/fuzz/two_nodes.h"

namespace {

using namespace orrery;
using namespace orrery::test;

constexpr std::uint64_t area = 64U << 10;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using fuzz::require;
  std::span<const std::uint8_t> input(data, size);
  const auto take = [&] {
    const std::uint8_t byte = input.empty() ? std::uint8_t{0} : input.front();
    input = input.empty() ? input : input.subspan(1);
    return byte;
  };
  VerbsSettings settings;
  settings.translation_entries = 1U << 16;
  settings.max_groups = 16;
  pcie::Simulation simulation;
  fabric::PacketPool pool;
  Node a(simulation, pool, 0, settings, 1U << 20);
  Node b(simulation, pool, 1, settings, 1U << 20);
  DirectPort::connect(a.wire, b.wire);
  constexpr QpType types[] = {QpType::rc, QpType::uc, QpType::ud, QpType::xrc, QpType::gsi, QpType::control};
  const QpType type = types[take() % 6];
  GuestCq ca = a.make_cq(4);
  GuestCq cb = b.make_cq(4);
  GuestQp qa = a.make_qp(type, ca);
  GuestQp qb = b.make_qp(type, cb);
  GuestSrq srq = b.make_srq(3);
  srq.context.cq = cb.number;
  b.write(ContextKind::srq, srq.number, srq.context);
  if ((take() & 1U) != 0) {
    qb.context.flags &= ~std::uint32_t{qp_has_receive_queue};
    qb.context.srq = srq.number;
  }
  qa.context.rnr_retry = 1;
  qa.context.retry_count = 1;
  qa.context.ack_timeout = 1;
  Node::connect(a, qa, b, qb);
  const std::uint64_t ma = a.allocate(area);
  const std::uint64_t mb = b.allocate(area);
  const fuzz::Guard guard(b);
  a.make_key(ma, area);  // 0x15a
  b.make_key(mb, area);
  MkeyContext list;  // 0x25a: a list that the guest has filled with anything
  list.state = KeyState::valid;
  list.mode = KeyMode::indirect;
  list.pd = Node::pd;
  list.access = Node::all_access;
  list.variant = 0x5a;
  list.length = 1U << 20;
  list.translation = 0x4000;
  list.translation_count = 8;
  a.write(ContextKind::mkey, 2, list);
  std::uint64_t words[8];
  for (std::uint64_t& word : words) {
    for (unsigned i = 0; i < 8; ++i) {
      word = (word << 8) | take();
    }
  }
  a.engine.write_translation(0x4000, words);

  while (!input.empty()) {
    const unsigned kind = take() % 8;
    const std::uint64_t count = std::min<std::uint64_t>(input.size(), 1 + take() * 4U);
    const std::uint64_t offset = take() * 64ULL;
    const auto bytes = input.first(std::min<std::size_t>(count, input.size()));
    const auto put = [&](Node& node, std::uint64_t at, std::uint64_t room) {
      if (offset < room) {
        const std::size_t n = std::min<std::size_t>(bytes.size(), room - offset);
        std::memcpy(node.memory.at(at + offset), bytes.data(), n);
      }
      input = input.subspan(bytes.size());
    };
    switch (kind) {
      case 0:
      case 1:
        put(a, qa.buffer + qa.context.send_offset, 4096);
        break;
      case 2:
        put(b, qb.buffer, 4096);
        break;
      case 3:
        put(b, srq.ring, 512);
        break;
      case 4:
        store32(b.memory.at(qb.record), static_cast<std::uint32_t>(offset / 64));
        store32(b.memory.at(srq.record), static_cast<std::uint32_t>(count));
        break;
      case 5:
        a.engine.complete_work_request(qa.number, CompletionCode::success);
        a.engine.arm_cq(0, Node::uar, ca.number, static_cast<std::uint32_t>(count), true, 0);
        store32(a.memory.at(ca.record), static_cast<std::uint32_t>(offset));
        break;
      default:
        store32(a.memory.at(qa.record) + 4, static_cast<std::uint32_t>(count));
        a.engine.ring_send(0, Node::uar, qa.number);
        fuzz::run(simulation, 2_ms);
        break;
    }
  }
  fuzz::run(simulation, 2_ms);
  fuzz::finish(simulation, pool, a, b);
  require(guard.untouched(), "only what a key covers is written");
  return 0;
}
