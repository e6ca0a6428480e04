// The driver's side of the mlx5 guest interface, for tests: init segment, command queue, mailboxes, command EQ.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <vector>

#include "firmware/layouts.h"
#include "tests/systemc_models/fake_bus.h"

namespace orrery::test {

// A command's bytes, by big-endian words.
class Words {
 public:
  explicit Words(std::size_t bytes = 0) : bytes_(bytes) {}
  [[nodiscard]] std::uint32_t operator[](std::size_t offset) const {
    std::uint32_t value = 0;
    if (offset + 4 <= bytes_.size()) {
      std::memcpy(&value, bytes_.data() + offset, 4);
    }
    return __builtin_bswap32(value);
  }
  Words& set(std::size_t offset, std::uint32_t value) {
    const std::uint32_t big = __builtin_bswap32(value);
    std::memcpy(bytes_.data() + offset, &big, 4);
    return *this;
  }
  Words& set64(std::size_t offset, std::uint64_t value) {
    set(offset, static_cast<std::uint32_t>(value >> 32));
    return set(offset + 4, static_cast<std::uint32_t>(value));
  }
  // A field of a structure that begins at `base`.
  Words& put(std::size_t base, const firmware::Field& field, std::uint32_t value) {
    return set(base + field.offset, field.put((*this)[base + field.offset], value));
  }
  [[nodiscard]] std::uint32_t get(std::size_t base, const firmware::Field& field) const {
    return field.get((*this)[base + field.offset]);
  }
  [[nodiscard]] std::uint64_t get64(std::size_t offset) const {
    return static_cast<std::uint64_t>((*this)[offset]) << 32 | (*this)[offset + 4];
  }
  void resize(std::size_t bytes) { bytes_.resize(bytes); }
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  [[nodiscard]] std::vector<std::byte>& bytes() { return bytes_; }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

struct Reply {
  bool answered = false;        // the entry's ownership came back
  std::uint32_t delivery = 0;   // delivery status
  std::uint32_t status = 0xff;  // of the output, if it was delivered
  std::uint32_t syndrome = 0;
  bool by_event = false;  // an EQE said so
  Words output;
  [[nodiscard]] std::uint32_t handle() const { return output[8] & 0xff'ffffU; }
  [[nodiscard]] bool ok() const { return answered && delivery == 0 && status == 0; }
};

// Guest memory is the bus's; this driver uses what is above `memory`.
class Mlx5Driver {
 public:
  Mlx5Driver(FakeBus& bus, FakePort& port, std::uint64_t memory = 0x1000'0000) : bus_(bus), port_(port) {
    queue_ = memory;
    next_ = memory + 0x1000;
  }

  [[nodiscard]] std::uint32_t read(std::uint64_t offset) { return __builtin_bswap32(port_.read32(offset)); }
  void write(std::uint64_t offset, std::uint32_t value) { port_.write32(offset, __builtin_bswap32(value)); }
  [[nodiscard]] std::uint64_t page() { return pages(1); }
  [[nodiscard]] std::uint64_t pages(std::uint64_t count) {
    const std::uint64_t at = next_;
    next_ += count * page_bytes;
    return at;
  }
  [[nodiscard]] std::uint64_t queue() const { return queue_; }

  // The device is there and its firmware runs; hands it the command queue.
  [[nodiscard]] bool begin() {
    bus_.run();
    if ((read(0x1fc) & 0x8000'0000U) != 0 || read(0x004) >> 16 != 5) {
      return false;
    }
    write(0x010, static_cast<std::uint32_t>(queue_ >> 32));
    write(0x014, static_cast<std::uint32_t>(queue_));
    bus_.run();
    return true;
  }

  // A mailbox chain of `bytes` data, its blocks in memory; returns the address of the first.
  std::uint64_t chain(std::size_t bytes, std::uint8_t token, const std::byte* data = nullptr) {
    std::vector<std::uint64_t> blocks;
    for (std::size_t at = 0; at < bytes; at += 512) {
      if (blocks.size() % 4 == 0) {
        mailbox_ = page();
      }
      blocks.push_back(mailbox_ + blocks.size() % 4 * 1024);
    }
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      Words block(576);
      if (data != nullptr) {
        std::memcpy(block.bytes().data(), data + i * 512, std::min<std::size_t>(512, bytes - i * 512));
      }
      block.set64(0x230, i + 1 < blocks.size() ? blocks[i + 1] : 0);
      block.set(0x238, static_cast<std::uint32_t>(i));
      block.set(0x23c, static_cast<std::uint32_t>(token) << 16);
      bus_.write(blocks[i], block.bytes());
    }
    last_chain_ = blocks;
    return blocks.empty() ? 0 : blocks[0];
  }
  [[nodiscard]] const std::vector<std::uint64_t>& last_chain() const { return last_chain_; }

  // Writes the entry and mailboxes of a command, without the doorbell. `damage` may change them.
  void prepare(unsigned slot, const Words& input, std::size_t output_bytes) {
    const std::uint8_t token = ++token_ == 0 ? ++token_ : token_;
    Slot& s = slots_[slot];
    s.output_bytes = output_bytes;
    Words entry(64);
    entry.set(0, 7U << 24);
    entry.set(4, static_cast<std::uint32_t>(input.size()));
    std::memcpy(entry.bytes().data() + 16, input.bytes().data(), std::min<std::size_t>(16, input.size()));
    if (input.size() > 16) {
      entry.set64(8, chain(input.size() - 16, token, input.bytes().data() + 16));
    }
    s.input_chain = last_chain_;
    s.output_chain.clear();
    if (output_bytes > 16) {
      entry.set64(0x30, chain(output_bytes - 16, token));
      s.output_chain = last_chain_;
    }
    entry.set(0x38, static_cast<std::uint32_t>(output_bytes));
    entry.set(0x3c, static_cast<std::uint32_t>(token) << 24 | 1);
    bus_.write(queue_ + slot * 64, entry.bytes());
  }
  void ring(unsigned slot) { write(0x018, 1U << slot); }
  [[nodiscard]] const std::vector<std::uint64_t>& input_chain(unsigned slot) { return slots_[slot].input_chain; }
  [[nodiscard]] const std::vector<std::uint64_t>& output_chain(unsigned slot) { return slots_[slot].output_chain; }

  [[nodiscard]] Reply collect(unsigned slot) {
    Reply reply;
    Words entry(64);
    bus_.read(queue_ + slot * 64, entry.bytes().data(), 64);
    reply.answered = (entry[0x3c] & 1U) == 0;
    reply.delivery = entry[0x3c] >> 1 & 0x7fU;
    std::uint32_t sum = 0;
    for (std::size_t at = 0; at < 64; ++at) {
      sum ^= std::to_integer<std::uint32_t>(entry.bytes()[at]);
    }
    if (reply.answered) {
      EXPECT_EQ(sum, 0xffU) << "signature of the entry";
    }
    const Slot& s = slots_[slot];
    reply.output.resize(std::max<std::size_t>(16, s.output_bytes));
    std::memcpy(reply.output.bytes().data(), entry.bytes().data() + 0x20, 16);
    for (std::size_t i = 0; i < s.output_chain.size(); ++i) {
      const std::size_t at = 16 + i * 512;
      bus_.read(s.output_chain[i], reply.output.bytes().data() + at, std::min<std::size_t>(512, s.output_bytes - at));
    }
    if (reply.delivery == 0 && reply.answered) {
      reply.status = reply.output[0] >> 24;
      reply.syndrome = reply.output[4];
    }
    reply.by_event = take_command_event(slot);
    return reply;
  }
  // A whole command.
  Reply run(const Words& input, std::size_t output_bytes, unsigned slot = 0) {
    prepare(slot, input, output_bytes);
    ring(slot);
    bus_.run();
    return collect(slot);
  }
  // opcode, op_mod, then words from offset 8.
  static Words command(std::uint32_t opcode, std::uint32_t op_mod = 0, std::initializer_list<std::uint32_t> words = {},
                       std::size_t bytes = 16) {
    Words input(std::max(bytes, 8 + words.size() * 4));
    input.set(0, opcode << 16);
    input.set(4, op_mod);
    std::size_t at = 8;
    for (const std::uint32_t word : words) {
      input.set(at, word);
      at += 4;
    }
    return input;
  }
  Reply run(std::uint32_t opcode, std::uint32_t op_mod = 0, std::initializer_list<std::uint32_t> words = {},
            std::size_t output_bytes = 16) {
    return run(command(opcode, op_mod, words), output_bytes);
  }

  // ENABLE_HCA … INIT_HCA, as the driver does it.
  void bring_up() {
    ASSERT_TRUE(begin());
    ASSERT_TRUE(run(0x104, 0, {}, 12).ok());
    ASSERT_TRUE(run(0x10a, 0, {}, 112).ok());
    ASSERT_TRUE(run(0x10b, 0, {1}).ok());
    ASSERT_TRUE(run(0x107, 1).ok());
    const Reply caps = run(0x100, 1, {}, 4112);
    ASSERT_TRUE(caps.ok());
    Words set(4112);
    std::memcpy(set.bytes().data() + 16, caps.output.bytes().data() + 16, 4096);
    set.set(0, 0x109U << 16);
    ASSERT_TRUE(run(set, 16).ok());
    ASSERT_TRUE(run(0x107, 2).ok());
    ASSERT_TRUE(run(command(0x102, 0, {}, 32), 16).ok());
    uar = run(0x802).handle();
    ASSERT_GE(uar, 8U);
  }
  // A queue's page list: fills `input` from 0x110 and returns the pages.
  std::uint64_t add_pages(Words& input, std::uint64_t bytes) {
    const std::uint64_t count = (bytes + page_bytes - 1) / page_bytes;
    const std::uint64_t first = pages(count);
    input.resize(0x110 + count * 8);
    for (std::uint64_t i = 0; i < count; ++i) {
      input.set64(0x110 + i * 8, first + i * page_bytes);
    }
    return first;
  }
  Reply create_eq(std::uint64_t mask, std::uint32_t log_size, std::uint32_t vector) {
    Words in = command(0x301);
    in.resize(0x110);
    const std::uint64_t ring_at = add_pages(in, 64ULL << log_size);
    // The driver initialises every owner bit to 1.
    for (std::uint64_t i = 0; i < 1ULL << log_size; ++i) {
      const std::byte owner{1};
      bus_.write(ring_at + i * 64 + 63, &owner, 1);
    }
    in.put(0x10, firmware::layout::eqc::log_size, log_size);
    in.put(0x10, firmware::layout::eqc::uar_page, uar);
    in.put(0x10, firmware::layout::eqc::vector, vector);
    in.set64(0x58, mask);
    Reply reply = run(in, 16);
    last_ring = ring_at;
    return reply;
  }
  // From now on commands are answered by events.
  void create_command_eq() {
    const Reply reply = create_eq(1ULL << 0x0a, 8, 0);
    ASSERT_TRUE(reply.ok());
    ASSERT_FALSE(reply.by_event);
    command_eqn = reply.output[8] & 0xffU;
    command_ring_ = last_ring;
    command_consumer_ = 0;
    arm(command_eqn, 0);
  }
  void arm(std::uint32_t eqn, std::uint32_t consumer) {
    write(uar * page_bytes + 0x40, eqn << 24 | (consumer & 0xff'ffffU));
  }
  void forget_command_eq() { command_eqn = 0; }
  Reply create_cq(std::uint32_t eqn, std::uint32_t log_size = 4) {
    namespace cqc = firmware::layout::cqc;
    Words in = command(0x400);
    in.resize(0x110);
    last_ring = add_pages(in, 64ULL << log_size);
    in.put(0x10, cqc::log_size, log_size).put(0x10, cqc::uar_page, uar).put(0x10, cqc::eqn, eqn);
    in.set64(0x10 + cqc::doorbell.offset, page());
    return run(in, 16);
  }
  struct QpShape {
    std::uint32_t service = 0;
    std::uint32_t pd = 0;
    std::uint32_t cqn = 0;
    std::uint32_t rq_type = 0;
    std::uint32_t srqn = 0;
    std::uint32_t log_sq = 4;
    std::uint32_t log_rq = 2;
    std::uint32_t xrcd = 0;
    bool reserved_key = false;
    bool target = false;  // an XRC target: no send queue, so no UAR page either
  };
  Reply create_qp(const QpShape& shape) {
    namespace qpc = firmware::layout::qpc;
    Words in = command(0x500);
    in.resize(0x110);
    static_cast<void>(add_pages(in, (64ULL << shape.log_sq) + (shape.rq_type == 0 ? 16ULL << shape.log_rq : 0)));
    in.put(0x18, qpc::type, shape.service).put(0x18, qpc::pd, shape.pd);
    in.put(0x18, qpc::no_sq, shape.target ? 1 : 0).put(0x18, qpc::uar_page, shape.target ? 0 : uar);
    in.put(0x18, qpc::cqn_send, shape.cqn).put(0x18, qpc::cqn_receive, shape.cqn);
    in.put(0x18, qpc::log_sq_size, shape.log_sq).put(0x18, qpc::log_rq_size, shape.log_rq);
    in.put(0x18, qpc::rq_type, shape.rq_type).put(0x18, qpc::srqn, shape.srqn).put(0x18, qpc::xrcd, shape.xrcd);
    in.put(0x18, qpc::reserved_key, shape.reserved_key ? 1 : 0);
    in.set64(0x18 + qpc::doorbell.offset, page());
    return run(in, 16);
  }
  // A transition, its context empty but for what `fill` sets.
  template <class Fill>
  Reply modify_qp(std::uint32_t opcode, std::uint32_t qpn, Fill fill) {
    Words in(272);
    in.set(0, opcode << 16);
    in.set(8, qpn);
    fill(in);
    return run(in, 16);
  }
  Reply create_mkey(std::uint32_t pd, std::uint32_t mode, std::uint32_t octwords, bool is_free, std::uint8_t variant,
                    const std::vector<std::uint64_t>& list = {}) {
    namespace mkc = firmware::layout::mkc;
    Words in = command(0x200);
    in.resize(0x110 + (list.size() + 1) / 2 * 16);
    in.put(0x10, mkc::free, is_free ? 1 : 0).put(0x10, mkc::umr_enabled, 1).put(0x10, mkc::mode_low, mode);
    in.put(0x10, mkc::local_read, 1).put(0x10, mkc::local_write, 1);
    in.put(0x10, mkc::qpn, 0xff'ffff).put(0x10, mkc::variant, variant).put(0x10, mkc::pd, pd);
    in.put(0x10, mkc::whole_space, mode == 0 ? 1 : 0).put(0x10, mkc::octwords, octwords);
    in.put(0x10, mkc::log_page_size, 12);
    in.put(0, mkc::actual_octwords, static_cast<std::uint32_t>((list.size() + 1) / 2));
    for (std::size_t i = 0; i < list.size(); ++i) {
      in.set64(0x110 + i * 8, list[i]);
    }
    return run(in, 16);
  }

  std::uint32_t uar = 0;
  std::uint32_t command_eqn = 0;
  std::uint64_t last_ring = 0;

 private:
  struct Slot {
    std::size_t output_bytes = 16;
    std::vector<std::uint64_t> input_chain;
    std::vector<std::uint64_t> output_chain;
  };
  bool take_command_event(unsigned slot) {
    if (command_eqn == 0) {
      return false;
    }
    Words eqe(64);
    bus_.read(command_ring_ + command_consumer_ % 256 * 64, eqe.bytes().data(), 64);
    const auto owner = std::to_integer<std::uint32_t>(eqe.bytes()[63]);
    if ((owner & 1U) != (command_consumer_ >> 8 & 1U)) {
      return false;
    }
    EXPECT_EQ(std::to_integer<std::uint32_t>(eqe.bytes()[1]), 0x0aU);
    EXPECT_EQ(eqe[0x20], 1U << slot);
    arm(command_eqn, ++command_consumer_);
    return true;
  }

  FakeBus& bus_;
  FakePort& port_;
  std::uint64_t queue_ = 0;
  std::uint64_t next_ = 0;
  std::uint64_t mailbox_ = 0;
  std::vector<std::uint64_t> last_chain_;
  std::map<unsigned, Slot> slots_;
  std::uint8_t token_ = 0;
  std::uint64_t command_ring_ = 0;
  std::uint32_t command_consumer_ = 0;
};

}  // namespace orrery::test
