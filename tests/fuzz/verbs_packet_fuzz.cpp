// Fuzz target: what a peer can send. Packets of any content to QPs of every type: only what an rkey or a posted
// receive covers is written, nothing hangs, nothing leaks.
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

class Input {
 public:
  explicit Input(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  std::uint8_t byte() {
    if (bytes_.empty()) {
      return 0;
    }
    const std::uint8_t value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return value;
  }
  std::uint32_t word() { return (std::uint32_t{byte()} << 8) | byte(); }
  // Mostly small, sometimes anything.
  std::uint64_t number() {
    const std::uint8_t kind = byte();
    if (kind < 200) {
      return kind % 8 == 7 ? word() : kind % 8;
    }
    return (std::uint64_t{word()} << 48) | (std::uint64_t{word()} << 32) | (std::uint64_t{word()} << 16) | word();
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using fuzz::require;
  Input input(std::span(data, size));
  VerbsSettings settings;
  settings.translation_entries = 1U << 16;
  settings.max_groups = 16;
  pcie::Simulation simulation;
  fabric::PacketPool pool;
  Node a(simulation, pool, 0, settings, 1U << 20);
  Node b(simulation, pool, 1, settings, 1U << 20);
  DirectPort::connect(a.wire, b.wire);
  GuestCq cb = b.make_cq(8);
  const std::uint64_t mb = b.allocate(area);
  const fuzz::Guard guard(b);
  const std::uint32_t key = b.make_key(mb, area);
  GuestSrq srq = b.make_srq(3);
  srq.context.cq = cb.number;
  srq.context.xrc_domain = 1;
  b.write(ContextKind::srq, srq.number, srq.context);
  std::vector<GuestQp> qps;
  for (const QpType type : {QpType::rc, QpType::uc, QpType::ud, QpType::xrc, QpType::gsi}) {
    GuestQp qp = b.make_qp(type, cb);
    if (type == QpType::xrc) {
      qp.context.flags &= ~std::uint32_t{qp_has_receive_queue};
      qp.context.xrc_domain = 1;
    }
    qp.context.receive_psn = qp.context.send_psn = 0;
    qp.context.rnr_retry = qp.context.retry_count = qp.context.ack_timeout = 1;
    b.aim(qp, a, 0x99);
    b.start(qp);
    for (unsigned i = 0; i < 6; ++i) {
      b.post_receive(qp, {{mb + 4096ULL * i, 4096, key}});
    }
    // Something of its own under way, so that acknowledges and responses have a meaning.
    if (type == QpType::rc || type == QpType::xrc) {
      for (const std::uint8_t opcode : {0x10, 0x08, 0x12}) {
        Wqe wqe{.opcode = opcode};
        if (type == QpType::xrc) {
          wqe.xrc(1);
        }
        wqe.remote(0x1000, 1);
        if (opcode == 0x12) {
          wqe.atomic(1, 1);
        }
        b.put(qp, wqe.data({mb + 32'768, opcode == 0x12 ? 8U : 3000U, key}));
      }
      b.ring(qp);
    }
    qps.push_back(qp);
  }
  for (unsigned i = 0; i < 4; ++i) {
    b.post(srq, {{mb + 4096ULL * i, 4096, key}});
  }
  simulation.events.run_until(simulation.now() + 1_us);

  while (!input.empty()) {
    const fabric::ContentHandle handle = pool.make();
    fabric::PacketContent& content = pool.at(handle);
    content.is_roce = true;
    fabric::RoceHeaders& h = content.roce;
    const std::uint8_t who = input.byte();
    const GuestQp& qp = qps[who % qps.size()];
    h.bth.destination_qp = (who & 0x80U) != 0 ? input.word() : qp.number;
    h.bth.opcode = input.byte();
    constexpr std::uint8_t transports[] = {0, 1, 3, 5, 3};
    if ((who & 0x40U) == 0) {
      h.bth.opcode = static_cast<std::uint8_t>((transports[who % qps.size()] << 5) | (h.bth.opcode & 31U));
    }
    h.bth.psn = static_cast<std::uint32_t>(input.number()) & 0xff'ffffU;
    const std::uint8_t flags = input.byte();
    h.bth.extended = (flags & 1U) == 0;
    h.bth.ack_request = (flags & 2U) != 0;
    h.aeth.syndrome = input.byte();
    h.reth = {mb + input.number(), (flags & 4U) != 0 ? input.word() : key, static_cast<std::uint32_t>(input.number())};
    h.atomic = {mb + (input.number() & ~std::uint64_t{7}), key, input.number(), input.number()};
    h.placement = {static_cast<std::uint32_t>(input.number()) & 0xff'ffffU,
                   static_cast<std::uint32_t>(input.number()) & 0xff'ffffU, static_cast<std::uint32_t>(input.number()),
                   mb + input.number(), key};
    h.ack = {static_cast<std::uint32_t>(input.number()) & 0xff'ffffU,
             static_cast<std::uint32_t>(input.number()) & 0xff'ffffU,
             input.number(),
             0xc000,
             true,
             1,
             1};
    h.immediate = h.invalidate_rkey = (flags & 8U) != 0 ? key : input.word();
    h.deth = {(flags & 16U) != 0 ? 0x8001'0000U : 0x1234U, input.word()};
    h.xrc_srq = (flags & 32U) != 0 ? input.byte() : srq.number;
    h.network.source[10] = h.network.source[11] = h.network.destination[10] = h.network.destination[11] = 0xff;
    h.network.source[12] = h.network.destination[12] = 10;
    h.network.source[15] = 1;
    h.network.destination[15] = 2;
    h.network.destination_mac = {b.mac()};
    constexpr std::uint32_t sizes[] = {0, 1, 1024, 1024, 700, 1025, 4096, 9216};
    const std::uint32_t bytes = sizes[input.byte() % 8];
    if (bytes != 0) {
      const auto into = pool.reserve(handle, bytes);
      std::fill(into.begin(), into.end(), std::byte{0x11});
    }
    fabric::Packet packet;
    packet.content = handle;
    packet.entropy = 0xc000;
    packet.psn = h.bth.psn;
    packet.destination_mac = {(flags & 64U) != 0 ? 0x0100'5e00'0001U : b.mac()};
    a.wire.send(packet);
    if ((flags & 128U) == 0) {
      fuzz::run(simulation);
    }
  }
  fuzz::run(simulation);
  fuzz::finish(simulation, pool, a, b);
  require(guard.untouched(), "only what a key covers is written");
  return 0;
}
