// Fuzz target: frames of any content that a peer sends to a function's Ethernet receive queues, and send WQEs of any
// content that a guest posts. Only posted receives are written, each frame by its own length; nothing hangs or leaks.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "tests/fuzz/two_nodes.h"

namespace {

using namespace orrery;
using namespace orrery::test;

constexpr std::uint32_t log_entries = 3;
constexpr std::uint32_t buffer_bytes = 2048;

struct Queue {
  std::uint32_t number = 0;
  std::uint64_t ring = 0;
  std::uint64_t record = 0;
  std::uint16_t producer = 0;
};

Queue make(Node& node, bool send, std::uint32_t index, const GuestCq& cq) {
  Queue q;
  q.number = send ? max_qps + index : index;
  q.ring = node.allocate(64ULL << log_entries);
  q.record = node.allocate(8);
  FrameQueueContext context;
  context.pd = Node::pd;
  context.uar = Node::uar;
  context.cq = cq.number;
  context.log_entries = log_entries;
  context.log_stride = send ? 6 : 5;
  context.buffer = node.queue_buffer(q.ring, 64ULL << log_entries);
  context.doorbell_record = q.record;
  for (const FrameQueueState state : {FrameQueueState::reset, FrameQueueState::ready}) {
    context.state = state;
    static_cast<void>(node.write(send ? ContextKind::send_queue : ContextKind::receive_queue, q.number, context));
  }
  return q;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using fuzz::require;
  std::span<const std::uint8_t> input(data, size);
  const auto take = [&input](std::size_t most) {
    const auto taken = input.first(std::min(most, input.size()));
    input = input.subspan(taken.size());
    return taken;
  };
  VerbsSettings settings;
  settings.translation_entries = 1U << 12;
  pcie::Simulation simulation;
  fabric::PacketPool pool;
  Node a(simulation, pool, 0, settings, 1U << 20);
  Node b(simulation, pool, 1, settings, 1U << 20);
  DirectPort::connect(a.wire, b.wire);
  GuestCq ca = a.make_cq(6);
  GuestCq cb = b.make_cq(6);
  Queue sq = make(a, true, 1, ca);
  Queue rqs[] = {make(b, false, 1, cb), make(b, false, 2, cb)};
  const std::uint64_t buffers = b.allocate(16 * buffer_bytes);
  const std::uint32_t buffers_key = b.make_key(buffers, 16 * buffer_bytes);
  const fuzz::Guard guard(b);
  const std::uint64_t source = a.allocate(1U << 14);
  const std::uint32_t source_key = a.make_key(source, 1U << 14);
  unsigned receives = 0;

  while (!input.empty()) {
    const std::uint8_t what = take(1)[0];
    const auto rest = take(1);
    const unsigned amount = rest.empty() ? 0 : rest[0];
    if (what < 80) {
      // A receive buffer, at times a short one (0 would be 2 GiB) or one that isn't there.
      Queue& q = rqs[what & 1U];
      std::byte* entry = b.memory.at(q.ring) + std::size_t{q.producer % (1U << log_entries)} * 32;
      std::memset(entry, 0, 32);
      Node::put_list(entry,
                     {{buffers + std::uint64_t{receives++ % 16} * buffer_bytes, amount < 16 ? amount + 1 : buffer_bytes,
                       what == 79 ? ~buffers_key : buffers_key}},
                     32);
      store32(b.memory.at(q.record), ++q.producer);
    } else if (what < 176) {
      // A frame as it is, after the destination address unless that is wanted.
      std::vector<std::byte> frame(16);
      const std::uint64_t mac = (what & 1U) != 0 ? b.mac() : 0xffff'ffff'ffff;
      for (unsigned i = 0; i < 6; ++i) {
        frame[i] = static_cast<std::byte>(mac >> (40 - 8 * i));
      }
      frame.resize((what & 2U) != 0 ? 6 : 0);
      const auto bytes = as_bytes(take(amount));
      frame.insert(frame.end(), bytes.begin(), bytes.end());
      if (frame.size() < 14) {
        frame.resize(14);
      }
      if ((what & 4U) != 0) {
        frame.resize(frame.size() + std::size_t{amount} * 8);  // a long one
      }
      fabric::Packet packet = fabric::packet_of(pool, pool.make_frame(frame));
      a.wire.send(packet);
    } else {
      // A send WQE of one to four blocks; its data segment may point to memory that the key covers.
      std::byte wqe[256] = {};
      const unsigned blocks = 1 + (what & 3U);
      const auto bytes = as_bytes(take(std::size_t{blocks} * 64));
      std::copy(bytes.begin(), bytes.end(), wqe);
      if ((what & 4U) != 0) {
        store32(wqe, std::uint32_t{sq.producer} << 8 | ((what & 8U) != 0 ? 0x0eU : 0x0aU));
        store32(wqe + 4, sq.number << 8 | (amount % 17));
      }
      if ((what & 16U) != 0) {
        store32(wqe + 48, amount * 64);
        store32(wqe + 52, source_key);
        store64(wqe + 56, source);
      }
      for (unsigned i = 0; i < blocks; ++i) {
        std::memcpy(a.memory.at(sq.ring) + std::size_t{sq.producer++ % (1U << log_entries)} * 64, wqe + i * 64, 64);
      }
      store32(a.memory.at(sq.record) + 4, sq.producer);
      a.engine.ring_send(0, Node::uar, sq.number);
    }
    fuzz::run(simulation);
    while (a.poll(ca)) {
    }
    while (const auto cqe = b.poll(cb)) {
      require(cqe->opcode != 2 || cqe->bytes <= buffer_bytes, "a received frame is no longer than its buffer");
    }
  }
  fuzz::finish(simulation, pool, a, b);
  require(guard.untouched(), "only posted receives are written");
  return 0;
}
