// A host with an RNIC's data path, for tests and benchmarks: the driver's and the firmware's side of it, in the mlx5
// formats, written anew from their description so that codec and test do not share code. No GoogleTest in here.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "systemc_models/rnic/mlx5/queue_format.h"
#include "systemc_models/rnic/verbs/verbs_engine.h"
#include "tests/systemc_models/rnic/memory_port.h"

namespace orrery::test {

using namespace orrery::rnic;

inline void store32(std::byte* at, std::uint32_t v) {
  v = __builtin_bswap32(v);
  std::memcpy(at, &v, 4);
}
inline void store64(std::byte* at, std::uint64_t v) {
  v = __builtin_bswap64(v);
  std::memcpy(at, &v, 8);
}
inline std::uint32_t load32(const std::byte* at) {
  std::uint32_t v = 0;
  std::memcpy(&v, at, 4);
  return __builtin_bswap32(v);
}

struct Cqe {
  unsigned opcode = 0;
  unsigned syndrome = 0;  // of an error
  unsigned send_opcode = 0;
  std::uint32_t qp = 0;
  std::uint32_t user_index = 0;
  std::uint32_t source_qp = 0;
  std::uint32_t immediate = 0;
  std::uint32_t bytes = 0;
  std::uint32_t counter = 0;
  bool has_grh = false;
  bool solicited = false;
};

struct Sge {
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  std::uint32_t key = 0;
};

// A send WQE under construction.
struct Wqe {
  std::uint8_t opcode = 0x0a;
  bool signalled = true;
  bool solicited = false;
  bool fence = false;
  std::uint32_t immediate = 0;
  std::vector<std::byte> body{};

  std::byte* grow(std::size_t bytes) {
    body.resize(body.size() + bytes);
    return body.data() + body.size() - bytes;
  }
  Wqe& remote(std::uint64_t address, std::uint32_t rkey) {
    std::byte* at = grow(16);
    store64(at, address);
    store32(at + 8, rkey);
    return *this;
  }
  Wqe& atomic(std::uint64_t swap_add, std::uint64_t compare) {
    std::byte* at = grow(16);
    store64(at, swap_add);
    store64(at + 8, compare);
    return *this;
  }
  Wqe& data(const Sge& sge) {
    std::byte* at = grow(16);
    store32(at, sge.length);
    store32(at + 4, sge.key);
    store64(at + 8, sge.address);
    return *this;
  }
  Wqe& inline_data(const void* bytes, std::uint32_t length) {
    std::byte* at = grow((4 + length + 15) / 16 * 16);
    store32(at, length | 0x8000'0000U);
    std::memcpy(at + 4, bytes, length);
    return *this;
  }
  Wqe& xrc(std::uint32_t srq) {
    store32(grow(16), srq);
    return *this;
  }
};

struct GuestCq {
  std::uint32_t number = 0;
  std::uint32_t log_entries = 0;
  std::uint64_t ring = 0;
  std::uint64_t record = 0;
  std::uint32_t consumer = 0;
};

struct GuestQp {
  std::uint32_t number = 0;
  QpContext context;
  std::uint64_t buffer = 0;
  std::uint64_t record = 0;
  std::uint16_t send_producer = 0;
  std::uint16_t receive_producer = 0;
  GuestCq* cq = nullptr;
};

struct GuestSrq {
  std::uint32_t number = 0;
  SrqContext context;
  std::uint64_t ring = 0;
  std::uint64_t record = 0;
  std::uint32_t head = 0;
  std::uint16_t posted = 0;
};

class Node final : public EventSink {
 public:
  static constexpr std::uint32_t uar = 9;
  static constexpr std::uint32_t pd = 3;

  Node(pcie::Simulation& simulation, fabric::PacketPool& pool, unsigned ordinal, const VerbsSettings& settings = {},
       std::size_t memory_bytes = 16U << 20)
      : memory(simulation, memory_bytes), wire(simulation, pool), engine(settings, format, *this), ordinal_(ordinal) {
    engine.attach(0, memory);
    engine.attach(wire, pool);
    FunctionContext function;
    function.mac = mac();
    function.enabled = 1;
    function.roce = 1;
    function.mtu = 4200;
    write(ContextKind::function, 0, function);
    AddressContext address;
    address.gid[10] = address.gid[11] = 0xff;
    address.gid[12] = 10;
    address.gid[15] = static_cast<std::uint8_t>(ordinal + 1);
    address.mac = mac();
    address.roce_version = 2;
    write(ContextKind::address, address_index(0, 0), address);
  }
  [[nodiscard]] std::uint64_t mac() const { return 0x0200'0000'0100 + ordinal_; }

  MemoryPort memory;
  DirectPort wire;
  mlx5::Mlx5QueueFormat format;
  VerbsEngine engine;
  std::vector<HardwareEvent> events;
  std::vector<std::pair<ContextKind, std::uint32_t>> idle;

  void on_hardware_event(const HardwareEvent& event) override { events.push_back(event); }
  void on_context_idle(ContextKind kind, std::uint32_t index) override { idle.emplace_back(kind, index); }
  [[nodiscard]] std::size_t count(EventCode code) const {
    std::size_t n = 0;
    for (const HardwareEvent& e : events) {
      n += e.code == code ? 1 : 0;
    }
    return n;
  }

  template <class Context>
  ControlResult write(ContextKind kind, std::uint32_t index, const Context& context) {
    return engine.write_context(kind, index, std::as_bytes(std::span(&context, 1)));
  }
  template <class Context>
  Context read(ContextKind kind, std::uint32_t index) {
    Context context;
    engine.read_context(kind, index, std::as_writable_bytes(std::span(&context, 1)));
    return context;
  }

  // ---- Memory ---------------------------------------------------------------------------------------------------
  std::uint64_t allocate(std::uint64_t bytes) {
    const std::uint64_t at = next_;
    next_ += (bytes + 4095) / 4096 * 4096;
    return at;
  }
  // Page entries for [address, address + bytes).
  std::uint32_t map(std::uint64_t address, std::uint64_t bytes, std::uint64_t flags = 3) {
    const std::uint64_t first_page = address & ~std::uint64_t{4095};
    std::vector<std::uint64_t> entries;
    for (std::uint64_t page = first_page; page < address + bytes; page += 4096) {
      entries.push_back(page | flags);
    }
    const std::uint32_t first = next_entry_;
    engine.write_translation(first, entries);
    next_entry_ += static_cast<std::uint32_t>(entries.size());
    return first;
  }
  QueueBuffer queue_buffer(std::uint64_t address, std::uint64_t bytes) {
    return {map(address, bytes), static_cast<std::uint32_t>((bytes + 4095) / 4096), 12, 0};
  }
  static constexpr std::uint32_t all_access = 31;
  // A key over [address, address + bytes), which it also is the virtual address of.
  std::uint32_t make_key(std::uint64_t address, std::uint64_t bytes, std::uint32_t access = all_access,
                         std::uint64_t flags = 3) {
    MkeyContext key;
    key.state = KeyState::valid;
    key.mode = KeyMode::pages;
    key.pd = pd;
    key.access = access;
    key.variant = 0x5a;
    key.start = address;
    key.length = bytes;
    key.translation = map(address, bytes, flags);
    key.translation_count = next_entry_ - key.translation;
    write(ContextKind::mkey, ++last_key_, key);
    return (last_key_ << 8) | 0x5a;
  }

  // ---- Queues ---------------------------------------------------------------------------------------------------
  std::uint32_t make_eq(std::uint32_t eqn, std::uint32_t vector, std::uint32_t log_entries = 6) {
    EqContext eq;
    eq.valid = 1;
    eq.uar = uar;
    eq.log_entries = log_entries;
    eq.vector = vector;
    eq_ring = allocate(64ULL << log_entries);
    for (std::uint32_t i = 0; i < (1U << log_entries); ++i) {
      memory.at(eq_ring)[64 * i + 63] = std::byte{1};
    }
    eq.buffer = queue_buffer(eq_ring, 64ULL << log_entries);
    write(ContextKind::eq, eq_index(0, eqn), eq);
    return eqn;
  }
  std::uint64_t eq_ring = 0;
  GuestCq make_cq(std::uint32_t log_entries, std::uint32_t eq = none) {
    GuestCq cq;
    cq.number = ++last_cq_;
    cq.log_entries = log_entries;
    cq.ring = allocate(64ULL << log_entries);
    cq.record = allocate(8);
    for (std::uint32_t i = 0; i < (1U << log_entries); ++i) {
      memory.at(cq.ring)[64 * i + 63] = std::byte{0xf1};
    }
    CqContext context;
    context.valid = 1;
    context.uar = uar;
    context.eq = eq;
    context.log_entries = log_entries;
    context.buffer = queue_buffer(cq.ring, 64ULL << log_entries);
    context.doorbell_record = cq.record;
    write(ContextKind::cq, cq.number, context);
    return cq;
  }
  std::optional<Cqe> poll(GuestCq& cq) {
    const std::uint32_t size = 1U << cq.log_entries;
    const std::byte* at = memory.at(cq.ring) + std::size_t{cq.consumer & (size - 1)} * 64;
    const auto op_own = std::to_integer<unsigned>(at[63]);
    if ((op_own & 1U) != ((cq.consumer >> cq.log_entries) & 1U) || (op_own >> 4) == 0xf) {
      return std::nullopt;
    }
    Cqe cqe;
    cqe.opcode = op_own >> 4;
    cqe.solicited = (op_own & 2U) != 0;
    cqe.syndrome = cqe.opcode >= 0xd ? std::to_integer<unsigned>(at[0x37]) : 0;
    cqe.qp = load32(at + 0x38) & 0xff'ffffU;
    cqe.send_opcode = load32(at + 0x38) >> 24;
    cqe.user_index = load32(at + 0x20) & 0xff'ffffU;
    cqe.source_qp = load32(at + 0x18) & 0xff'ffffU;
    cqe.has_grh = ((load32(at + 0x18) >> 28) & 3U) != 0;
    cqe.immediate = load32(at + 0x24);
    cqe.bytes = load32(at + 0x2c);
    cqe.counter = load32(at + 0x3c) >> 16;
    ++cq.consumer;
    store32(memory.at(cq.record), cq.consumer & 0xff'ffffU);
    return cqe;
  }
  GuestSrq make_srq(std::uint32_t log_entries, std::uint32_t log_stride = 6) {
    GuestSrq srq;
    srq.number = ++last_srq_;
    SrqContext& c = srq.context;
    c.valid = 1;
    c.pd = pd;
    c.log_entries = log_entries;
    c.log_stride = log_stride;
    const std::uint64_t bytes = std::uint64_t{1} << (log_entries + log_stride);
    srq.ring = allocate(bytes);
    srq.record = allocate(8);
    c.buffer = queue_buffer(srq.ring, bytes);
    c.doorbell_record = srq.record;
    for (std::uint32_t i = 0; i < (1U << log_entries); ++i) {
      store32(memory.at(srq.ring) + (std::size_t{i} << log_stride), (i + 1) & ((1U << log_entries) - 1));
    }
    return srq;
  }
  void post(GuestSrq& srq, const std::vector<Sge>& list) {
    std::byte* at = memory.at(srq.ring) + (std::size_t{srq.head} << srq.context.log_stride);
    const std::uint32_t next = load32(at) & 0xffffU;
    put_list(at + 16, list, (1U << srq.context.log_stride) - 16);
    srq.head = next;
    store32(memory.at(srq.record), ++srq.posted);
  }
  GuestQp make_qp(QpType type, GuestCq& cq, std::uint32_t flags = 0, std::uint32_t log_size = 6) {
    GuestQp qp;
    qp.number = ++last_qp_;
    qp.cq = &cq;
    QpContext& c = qp.context;
    c.type = type;
    c.flags = qp_has_send_queue | qp_has_receive_queue | qp_remote_read | qp_remote_write | qp_remote_atomic | flags;
    c.pd = pd;
    c.uar = uar;
    c.user_index = 0x100 + qp.number;
    c.send_cq = c.receive_cq = cq.number;
    c.log_receive_entries = c.log_send_blocks = log_size;
    c.log_receive_stride = 6;
    c.send_offset = 64U << log_size;
    const std::uint64_t bytes = 128ULL << log_size;
    qp.buffer = allocate(bytes);
    qp.record = allocate(8);
    c.buffer = queue_buffer(qp.buffer, bytes);
    c.doorbell_record = qp.record;
    c.mtu = 1024;
    c.retry_count = 7;
    c.rnr_retry = 7;
    c.min_rnr_timer = 1;
    c.ack_timeout = 14;
    c.max_read_out = c.max_read_in = 16;
    c.qkey = 0x1234;
    return qp;
  }
  ControlResult enter(GuestQp& qp, QpState state) {
    qp.context.state = state;
    return write(ContextKind::qp, qp.number, qp.context);
  }
  void aim(GuestQp& qp, const Node& peer, std::uint32_t remote_qp) {
    PathContext& path = qp.context.path;
    std::memset(path.remote_gid, 0, 16);
    path.remote_gid[10] = path.remote_gid[11] = 0xff;
    path.remote_gid[12] = 10;
    path.remote_gid[15] = static_cast<std::uint8_t>(peer.ordinal_ + 1);
    path.remote_mac = peer.mac();
    path.has_grh = 1;
    path.hop_limit = 64;
    qp.context.remote_qp = remote_qp;
  }
  // init → rtr → rts.
  void start(GuestQp& qp) {
    enter(qp, QpState::init);
    enter(qp, QpState::rtr);
    enter(qp, QpState::rts);
  }
  static void connect(Node& a, GuestQp& qa, Node& b, GuestQp& qb) {
    qa.context.send_psn = qb.context.receive_psn = 0xffff'f0 + qa.number;  // wraps early
    qb.context.send_psn = qa.context.receive_psn = 100 + qb.number;
    a.aim(qa, b, qb.number);
    b.aim(qb, a, qa.number);
    a.start(qa);
    b.start(qb);
  }

  // Writes a WQE; ring() tells the hardware. Returns its index.
  std::uint16_t put(GuestQp& qp, const Wqe& wqe) {
    const std::uint32_t size = 1U << qp.context.log_send_blocks;
    const auto segments = static_cast<std::uint32_t>(1 + wqe.body.size() / 16);
    std::vector<std::byte> bytes(std::size_t{(segments + 3) / 4} * 64);
    const std::uint16_t index = qp.send_producer;
    store32(bytes.data(), (std::uint32_t{index} << 8) | wqe.opcode);
    store32(bytes.data() + 4, (qp.number << 8) | segments);
    store32(bytes.data() + 8, (wqe.signalled ? 8U : 0U) | (wqe.solicited ? 2U : 0U) | (wqe.fence ? 0x40U : 0U));
    store32(bytes.data() + 12, wqe.immediate);
    std::copy(wqe.body.begin(), wqe.body.end(), bytes.begin() + 16);
    for (std::size_t block = 0; block < bytes.size() / 64; ++block) {
      std::memcpy(memory.at(qp.buffer) + qp.context.send_offset + std::size_t{qp.send_producer & (size - 1)} * 64,
                  bytes.data() + block * 64, 64);
      ++qp.send_producer;
    }
    return index;
  }
  void ring(GuestQp& qp) {
    store32(memory.at(qp.record) + 4, qp.send_producer);
    engine.ring_send(qp.context.function, uar, qp.number);
  }
  std::uint16_t post(GuestQp& qp, const Wqe& wqe) {
    const std::uint16_t index = put(qp, wqe);
    ring(qp);
    return index;
  }
  static void put_list(std::byte* at, const std::vector<Sge>& list, std::size_t room) {
    std::size_t used = 0;
    for (const Sge& sge : list) {
      store32(at + used, sge.length);
      store32(at + used + 4, sge.key);
      store64(at + used + 8, sge.address);
      used += 16;
    }
    if (used < room) {
      store32(at + used, 0);
      store32(at + used + 4, 0x100);
      store64(at + used + 8, 0);
    }
  }
  void post_receive(GuestQp& qp, const std::vector<Sge>& list) {
    const std::uint32_t size = 1U << qp.context.log_receive_entries;
    put_list(memory.at(qp.buffer) + std::size_t{qp.receive_producer & (size - 1)} * 64, list, 64);
    store32(memory.at(qp.record), ++qp.receive_producer);
  }

 private:
  unsigned ordinal_;
  std::uint64_t next_ = MemoryPort::base;
  std::uint32_t next_entry_ = 1;
  std::uint32_t last_key_ = 0;
  std::uint32_t last_cq_ = 0;
  std::uint32_t last_srq_ = 0;
  std::uint32_t last_qp_ = 0x40;
};

}  // namespace orrery::test
