#include "studies/mlx5_client.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "common/error.h"
#include "firmware/layouts.h"

namespace orrery::studies {

namespace layout = firmware::layout;

namespace {

constexpr std::uint32_t page_bytes = 4096;
constexpr std::uint32_t block_bytes = 64;  // of a send queue and of a CQ
constexpr Picoseconds command_limit{1'000'000'000'000};
// Initialization segment (docs/firmware.md).
constexpr std::uint64_t command_queue_high = 0x10;
constexpr std::uint64_t command_queue_low = 0x14;
constexpr std::uint64_t command_doorbell = 0x18;
constexpr std::uint64_t initializing = 0x1fc;
constexpr std::uint64_t blue_flame = 0x800;  // doorbell of a UAR page
// WQE segments.
constexpr std::uint32_t opcode_write = 0x08;
constexpr std::uint32_t signalled = 0x08;
constexpr std::uint32_t inline_flag = 0x8000'0000U;
constexpr std::uint32_t segment_bytes = 16;
constexpr std::uint32_t log_cq = 9;

void store32(std::byte* at, std::uint32_t value) {
  const std::uint32_t big = __builtin_bswap32(value);
  std::memcpy(at, &big, 4);
}
void store64(std::byte* at, std::uint64_t value) {
  const std::uint64_t big = __builtin_bswap64(value);
  std::memcpy(at, &big, 8);
}
std::uint32_t load32(const std::byte* at) {
  std::uint32_t big = 0;
  std::memcpy(&big, at, 4);
  return __builtin_bswap32(big);
}

CommandBytes command(std::uint32_t opcode, std::uint32_t op_mod = 0, std::uint32_t word = 0, std::size_t bytes = 16) {
  CommandBytes input(bytes);
  input.set(0, opcode << 16);
  input.set(4, op_mod);
  input.set(8, word);
  return input;
}

std::uint32_t log_mtu(std::uint32_t mtu) {  // IBTA: 1 is 256 bytes, 5 is 4096
  std::uint32_t code = 1;
  while (256U << (code - 1) < mtu && code < 5) {
    ++code;
  }
  return code;
}

}  // namespace

std::uint32_t CommandBytes::word(std::size_t offset) const {
  return offset + 4 <= bytes_.size() ? load32(bytes_.data() + offset) : 0;
}
void CommandBytes::set(std::size_t offset, std::uint32_t value) {
  store32(bytes_.data() + offset, value);
}
void CommandBytes::set_wide(std::size_t offset, std::uint64_t value) {
  store64(bytes_.data() + offset, value);
}
void CommandBytes::put(std::size_t base, const firmware::Field& field, std::uint32_t value) {
  set(base + field.offset, field.put(word(base + field.offset), value));
}

Mlx5Client::Mlx5Client(ScriptedGuest& guest, const Settings& settings) : guest_(guest), settings_(settings) {
  queue_ = guest_.allocate(page_bytes);
  // Enough for the longest command here, input and output, used anew by each.
  mailbox_area_ = guest_.allocate(std::uint64_t{16} * page_bytes);
  bring_up();
  make_objects();
}

// A chain of mailbox blocks with `bytes` of data (null: zeroes); the address of its first.
std::uint64_t Mlx5Client::mailboxes(const std::byte* data, std::size_t bytes) {
  constexpr std::uint64_t stride = 1024;
  std::uint64_t first = 0;
  std::byte* link = nullptr;
  for (std::size_t done = 0, number = 0; done < bytes; done += layout::mailbox::data_bytes, ++number) {
    const std::uint64_t at = mailbox_next_;
    mailbox_next_ += stride;
    std::byte* block = guest_.memory(at, layout::mailbox::bytes).data();
    std::memset(block, 0, layout::mailbox::bytes);
    if (data != nullptr) {
      std::memcpy(block, data + done, std::min<std::size_t>(layout::mailbox::data_bytes, bytes - done));
    }
    std::byte* trailer = block + layout::mailbox::data_bytes;
    store32(trailer + layout::mailbox::number.offset, static_cast<std::uint32_t>(number));
    store32(trailer + layout::mailbox::token.offset, layout::mailbox::token.put(0, token_));
    if (link == nullptr) {
      first = at;
    } else {
      store64(link, at);
    }
    link = trailer + layout::mailbox::next.offset;
  }
  return first;
}

// Runs one command to its answer, in slot 0 of the queue.
CommandBytes Mlx5Client::run(CommandBytes input, std::size_t output_bytes) {
  namespace entry = layout::entry;
  token_ = static_cast<std::uint8_t>(token_ % 255 + 1);
  mailbox_next_ = mailbox_area_;
  std::byte* at = guest_.memory(queue_, entry::bytes).data();
  std::memset(at, 0, entry::bytes);
  const std::size_t in_entry = std::min<std::size_t>(entry::inline_bytes, input.bytes().size());
  std::memcpy(at + entry::input_inline, input.bytes().data(), in_entry);
  if (input.bytes().size() > entry::inline_bytes) {
    store64(at + entry::input_mailbox.offset,
            mailboxes(input.bytes().data() + in_entry, input.bytes().size() - in_entry));
  }
  std::uint64_t answer = 0;
  if (output_bytes > entry::inline_bytes) {
    answer = mailboxes(nullptr, output_bytes - entry::inline_bytes);
    store64(at + entry::output_mailbox.offset, answer);
  }
  store32(at + entry::type.offset, entry::type.put(0, entry::type_pci));
  store32(at + entry::input_length.offset, static_cast<std::uint32_t>(input.bytes().size()));
  store32(at + entry::output_length.offset, static_cast<std::uint32_t>(output_bytes));
  store32(at + entry::last_word, entry::owner.put(entry::token.put(0, token_), 1));
  guest_.write32(command_doorbell, 1);
  run_until(guest_.platform(), command_limit, "a command's answer",
            [at] { return entry::owner.get(load32(at + entry::last_word)) == 0; });
  CommandBytes output(std::max<std::size_t>(entry::inline_bytes, output_bytes));
  std::memcpy(output.bytes().data(), at + entry::output_inline, entry::inline_bytes);
  for (std::size_t done = entry::inline_bytes; done < output_bytes; done += layout::mailbox::data_bytes) {
    const std::size_t bytes = std::min<std::size_t>(layout::mailbox::data_bytes, output_bytes - done);
    std::memcpy(output.bytes().data() + done, guest_.memory(answer, bytes).data(), bytes);
    answer += 1024;
  }
  const std::uint32_t delivery = entry::delivery.get(load32(at + entry::last_word));
  const std::uint32_t status = output.word(0) >> 24;
  if (delivery != 0 || status != 0) {
    throw Error(fmt::format("{}: command {:#x}: delivery status {:#x}, status {:#x}, syndrome {:#x}", guest_.name(),
                            input.word(0) >> 16, delivery, status, output.word(4)));
  }
  return output;
}

void Mlx5Client::bring_up() {
  run_until(guest_.platform(), command_limit, "the RNIC's firmware",
            [this] { return (guest_.read32(initializing) >> 31) == 0; });
  guest_.write32(command_queue_high, static_cast<std::uint32_t>(queue_ >> 32));
  guest_.write32(command_queue_low, static_cast<std::uint32_t>(queue_));
  run(command(0x104), 12);        // ENABLE_HCA
  run(command(0x10b, 0, 1), 16);  // SET_ISSI
  const CommandBytes capabilities = run(command(0x100, 1), 4112);
  CommandBytes set(4112);  // SET_HCA_CAP: as they are
  std::copy(capabilities.bytes().begin() + 16, capabilities.bytes().end(), set.bytes().begin() + 16);
  set.set(0, 0x109U << 16);
  run(set, 16);
  run(command(0x102, 0, 0, 32), 16);  // INIT_HCA
}

// A queue of `bytes` in guest memory: its pages at the end of `input`; where it is.
std::uint64_t Mlx5Client::add_pages(CommandBytes& input, std::uint64_t bytes) {
  constexpr std::size_t list = 0x110;
  const std::uint64_t count = (bytes + page_bytes - 1) / page_bytes;
  const std::uint64_t first = guest_.allocate(count * page_bytes);
  input.bytes().resize(list + count * 8);
  for (std::uint64_t i = 0; i < count; ++i) {
    input.set_wide(list + i * 8, first + i * page_bytes);
  }
  return first;
}

void Mlx5Client::make_objects() {
  constexpr std::size_t context = 0x10;
  uar_ = run(command(0x802), 16).word(8) & 0xff'ffffU;
  pd_ = run(command(0x800), 16).word(8) & 0xff'ffffU;

  CommandBytes eq = command(0x301, 0, 0, 0x110);
  constexpr std::uint32_t log_eq = 6;
  const std::uint64_t events = add_pages(eq, std::uint64_t{64} << log_eq);
  for (std::uint64_t i = 0; i < std::uint64_t{1} << log_eq; ++i) {
    guest_.memory(events + i * 64 + 63, 1)[0] = std::byte{1};  // the hardware's
  }
  eq.put(context, layout::eqc::log_size, log_eq);
  eq.put(context, layout::eqc::uar_page, uar_);
  const std::uint32_t eqn = run(eq, 16).word(8) & 0xffU;

  // All of memory, by its I/O virtual addresses.
  CommandBytes key = command(0x200, 0, 0, 0x110);
  namespace mkc = layout::mkc;
  constexpr std::uint32_t variant = 0x42;
  for (const firmware::Field* right : {&mkc::local_read, &mkc::local_write, &mkc::remote_read, &mkc::remote_write}) {
    key.put(context, *right, 1);
  }
  key.put(context, mkc::mode_low, mkc::mode_physical);
  key.put(context, mkc::whole_space, 1);
  key.put(context, mkc::qpn, 0xff'ffff);
  key.put(context, mkc::variant, variant);
  key.put(context, mkc::pd, pd_);
  key_ = (run(key, 16).word(8) & 0xff'ffffU) << 8 | variant;

  CommandBytes cq = command(0x400, 0, 0, 0x110);
  cq_ring_ = add_pages(cq, std::uint64_t{block_bytes} << log_cq);
  cq_doorbell_ = guest_.allocate(8);
  for (std::uint64_t i = 0; i < std::uint64_t{1} << log_cq; ++i) {
    guest_.memory(cq_ring_ + i * block_bytes + 63, 1)[0] = std::byte{0xf1};  // invalid, the hardware's
  }
  cq.put(context, layout::cqc::log_size, log_cq);
  cq.put(context, layout::cqc::uar_page, uar_);
  cq.put(context, layout::cqc::eqn, eqn);
  cq.set_wide(context + layout::cqc::doorbell.offset, cq_doorbell_);
  cq_ = run(cq, 16).word(8) & 0xff'ffffU;

  CommandBytes qp = qp_input(0x500);
  qp.bytes().resize(0x110);
  namespace qpc = layout::qpc;
  constexpr std::size_t qp_context = 0x18;
  send_ring_ = add_pages(qp, std::uint64_t{block_bytes} << settings_.log_depth);
  qp_doorbell_ = guest_.allocate(8);
  qp.put(qp_context, qpc::type, 0);  // RC
  qp.put(qp_context, qpc::rq_type, qpc::rq_none);
  qp.put(qp_context, qpc::pd, pd_);
  qp.put(qp_context, qpc::uar_page, uar_);
  qp.put(qp_context, qpc::cqn_send, cq_);
  qp.put(qp_context, qpc::cqn_receive, cq_);
  qp.put(qp_context, qpc::log_sq_size, settings_.log_depth);
  qp.set_wide(qp_context + qpc::doorbell.offset, qp_doorbell_);
  qp_ = run(qp, 16).word(8) & 0xff'ffffU;
}

CommandBytes Mlx5Client::qp_input(std::uint32_t opcode) const {
  return command(opcode, 0, qp_, 272);
}

void Mlx5Client::connect(const Mlx5Client& peer) {
  namespace qpc = layout::qpc;
  namespace ads = layout::ads;
  constexpr std::size_t context = 0x18;
  constexpr std::size_t path = context + qpc::path;
  CommandBytes init = qp_input(0x502);
  init.put(context, qpc::remote_write, 1);
  init.put(context, qpc::remote_read, 1);
  init.put(path, ads::port, 1);
  run(init, 16);
  CommandBytes rtr = qp_input(0x503);
  rtr.put(context, qpc::mtu, log_mtu(settings_.mtu));
  rtr.put(context, qpc::log_message, 30);
  rtr.put(context, qpc::remote_qpn, peer.qp());
  rtr.put(context, qpc::log_rra_max, 4);
  rtr.put(context, qpc::remote_write, 1);
  rtr.put(context, qpc::remote_read, 1);
  rtr.put(path, ads::rlid, peer.settings_.lid);
  rtr.put(path, ads::port, 1);
  run(rtr, 16);
  CommandBytes rts = qp_input(0x504);
  rts.put(context, qpc::retry_count, 7);
  rts.put(context, qpc::rnr_retry, 7);
  rts.put(context, qpc::log_sra_max, 4);
  rts.put(path, ads::ack_timeout, 14);
  run(rts, 16);
}

unsigned Mlx5Client::room() const {
  const std::uint32_t blocks =
      settings_.max_inline == 0 ? 1 : (3 * segment_bytes + settings_.max_inline + block_bytes - 1) / block_bytes;
  return ((1U << settings_.log_depth) - (posted_ - completed_)) / blocks;
}

void Mlx5Client::write(std::uint64_t from, std::uint32_t length, std::uint64_t to, std::uint32_t remote_key) {
  if (room() == 0) {
    throw Error(fmt::format("{}: the send queue is full", guest_.name()), "poll() first");
  }
  const std::uint32_t ring_bytes = block_bytes << settings_.log_depth;
  std::array<std::byte, 512> wqe{};
  std::uint32_t bytes = 3 * segment_bytes;
  store64(wqe.data() + 16, to);
  store32(wqe.data() + 24, remote_key);
  if (length <= settings_.max_inline && length != 0) {
    store32(wqe.data() + 32, inline_flag | length);
    std::memcpy(wqe.data() + 36, guest_.memory(from, length).data(), length);
    bytes = 36 + length;
  } else {
    store32(wqe.data() + 32, length);
    store32(wqe.data() + 36, key_);
    store64(wqe.data() + 40, from);
  }
  const std::uint32_t segments = (bytes + segment_bytes - 1) / segment_bytes;
  store32(wqe.data(), (posted_ & 0xffffU) << 8 | opcode_write);
  store32(wqe.data() + 4, qp_ << 8 | segments);
  store32(wqe.data() + 8, signalled);
  const std::uint32_t blocks = (segments * segment_bytes + block_bytes - 1) / block_bytes;
  for (std::uint32_t i = 0; i < blocks; ++i) {
    std::memcpy(guest_.memory(send_ring_ + std::uint64_t{(posted_ + i) * block_bytes % ring_bytes}, block_bytes).data(),
                wqe.data() + std::size_t{i} * block_bytes, block_bytes);
  }
  posted_ += blocks;
  store32(guest_.memory(qp_doorbell_ + 4, 4).data(), posted_ & 0xffffU);
  guest_.write64(std::uint64_t{uar_} * page_bytes + blue_flame,
                 std::uint64_t{load32(wqe.data())} << 32 | load32(wqe.data() + 4));
}

unsigned Mlx5Client::poll() {
  unsigned taken = 0;
  for (;; ++taken) {
    const std::byte* cqe =
        guest_.memory(cq_ring_ + std::uint64_t{consumed_ % (1U << log_cq)} * block_bytes, block_bytes).data();
    const auto owner = std::to_integer<std::uint32_t>(cqe[63]);
    if ((owner & 1U) != ((consumed_ >> log_cq) & 1U) || owner >> 4 == 0xf) {
      break;
    }
    constexpr std::uint32_t requester_done = 0;
    if (owner >> 4 != requester_done) {
      throw Error(fmt::format("{}: completion with opcode {:#x}, syndrome {:#x}", guest_.name(), owner >> 4,
                              std::to_integer<unsigned>(cqe[55])));
    }
    ++consumed_;
    // The WQE that it is of, and all before it. WQEs of one block: messages that aren't inline, or short ones.
    const std::uint32_t counter = load32(cqe + 60) >> 16;
    const std::uint32_t ahead = (counter - completed_) & 0xffffU;
    completed_ += ahead + 1;
    store32(guest_.memory(cq_doorbell_, 4).data(), consumed_ & 0xff'ffffU);
  }
  return taken;
}

}  // namespace orrery::studies
