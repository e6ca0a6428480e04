// Work requests that change memory keys: UMR (the driver's memory registration), and the fast registration and
// invalidation of kernel protocols, which are UMRs too. One at a time; the others wait in a queue.
#include "firmware/commands.h"

namespace orrery::firmware {

namespace reg = rnic::reg;
using namespace layout;
using reg::ContextOp;
using reg::ContextStatus;
using reg::WorkResult;
using rnic::ContextKind;

namespace {

constexpr std::uint32_t work_channel = 1;
constexpr std::uint32_t opcode_umr = 0x25;
constexpr std::uint32_t any_qp = 0xff'ffff;
constexpr std::uint32_t octword = 16;
constexpr std::uint32_t words_per_octword = 2;
constexpr std::uint32_t drain_poll_us = 1;

}  // namespace

// Bus address of bytes that a WQE names by key: only the reserved key and physical keys can be resolved without
// walking translations, and drivers use no others for lists.
bool Firmware::resolve_key(std::uint32_t function, std::uint32_t key, std::uint64_t address, std::uint64_t& bus) const {
  bus = address;
  if (key == rnic::reserved_key) {
    return true;
  }
  rnic::MkeyContext k;
  return read_context(ContextKind::mkey, key >> 8, &k, sizeof k) == ContextStatus::ok && k.function == function &&
         k.mode == rnic::KeyMode::physical && k.state == rnic::KeyState::valid && k.variant == (key & 0xffU) &&
         (k.access & rnic::key_local_read) != 0;
}

void Firmware::complete_work(WorkResult result) {
  write32(hal_, reg::work_qp, work_.qp);
  write32(hal_, reg::work_complete, static_cast<std::uint32_t>(result));
  work_.phase = WorkPhase::idle;
}

void Firmware::next_work() {
  while (work_.phase == WorkPhase::idle && queue_count_ > 0) {
    const WorkItem item = queue_[queue_head_];
    queue_head_ = (queue_head_ + 1) % work_items;
    --queue_count_;
    begin_work(item);
  }
}

void Firmware::begin_work(const WorkItem& item) {
  work_.function = item.function;
  work_.qp = item.qp;
  if (qps.find(item.function, item.qp) == nullptr) {
    return;  // it went in the meantime
  }
  write32(hal_, reg::work_qp, item.qp);
  const std::uint32_t bytes = read32(hal_, reg::work_length);
  if (bytes == 0) {
    return;
  }
  for (std::uint32_t at = 0; at < bytes; at += 4) {
    write32(hal_, reg::sram + local::request + at, read32(hal_, reg::work_data + at));
  }
  const View w(hal_, local::request);
  if (bytes < umr::data_at || (w.word(0) & 0xffU) != opcode_umr) {
    complete_work(WorkResult::local_qp_operation);
    return;
  }
  const View u = w.at(umr::at);
  rnic::QpContext qp;
  const std::uint32_t key = w.word(0x0c);
  const Mkey* mkey = mkeys.find(item.function, key >> 8);
  if (read_context(ContextKind::qp, item.qp, &qp, sizeof qp) != ContextStatus::ok || mkey == nullptr ||
      mkey->umr_enabled == 0 ||
      read_context(ContextKind::mkey, key >> 8, &work_.context, sizeof work_.context) != ContextStatus::ok) {
    complete_work(WorkResult::memory_window_bind);
    return;
  }
  work_.key = key >> 8;
  const bool is_free = work_.context.state == rnic::KeyState::free;
  if ((u.get(umr::check_free) != 0 && !is_free) || (u.get(umr::check_valid) != 0 && is_free)) {
    complete_work(WorkResult::memory_window_bind);
    return;
  }
  // The control QP is the driver's own and may give a key to any protection domain; another QP changes keys of its
  // domain only.
  const std::uint64_t mask = u.get(umr::mask);
  if (qp.type != rnic::QpType::control && (qp.pd != mkey->pd || (mask & umr::mask_pd) != 0)) {
    complete_work(WorkResult::local_protection);
    return;
  }
  const View c = w.at(umr::context_at);
  if ((mask & umr::mask_pd) != 0 && pds.find(item.function, c.get(mkc::pd)) == nullptr) {
    complete_work(WorkResult::local_protection);
    return;
  }
  if (!apply_mask(c, mask)) {
    complete_work(WorkResult::local_qp_operation);
    return;
  }
  work_.change_context = mask != 0;

  // The list.
  const std::uint32_t octwords = u.get(umr::octwords);
  std::uint64_t offset = 0;
  if (u.get(umr::offset_valid) != 0) {
    offset = static_cast<std::uint64_t>(u.get(umr::offset_high)) << 16 | u.get(umr::offset_low);
  }
  if (octwords == 0) {
    apply_work();
    return;
  }
  if (offset + octwords > mkey->run.entries / words_per_octword) {
    complete_work(WorkResult::memory_window_bind);
    return;
  }
  work_.entry = mkey->run.start + static_cast<std::uint32_t>(offset) * words_per_octword;
  work_.bytes = octwords * octword;
  if (u.get(umr::inline_list) != 0) {
    if (umr::data_at + work_.bytes > bytes) {
      complete_work(WorkResult::local_qp_operation);
      return;
    }
    work_.bytes = 0;
    load_work_list(local::request + umr::data_at, octwords);
    apply_work();
    return;
  }
  const View data = w.at(umr::data_at);
  if (bytes < umr::data_at + octword) {
    complete_work(WorkResult::local_qp_operation);
    return;
  }
  const std::uint32_t list_key = data.word(4);
  if ((list_key == rnic::reserved_key && (qp.flags & rnic::qp_reserved_key) == 0) ||
      !resolve_key(item.function, list_key, data.wide(8), work_.address)) {
    complete_work(WorkResult::local_protection);
    return;
  }
  work_.phase = WorkPhase::list;
  start_work_list();
}

// The key's context as it will be, from the driver's and the mask. False: a value that can't be.
bool Firmware::apply_mask(const View& c, std::uint64_t mask) {
  rnic::MkeyContext& k = work_.context;
  if ((mask & umr::mask_length) != 0) {
    k.length = c.get(mkc::length);
    k.whole_space = c.get(mkc::whole_space);
  }
  if ((mask & (umr::mask_page_size | umr::mask_page_size_5)) != 0) {
    constexpr std::uint32_t low = 0x1f;
    const std::uint32_t wanted = c.get(mkc::log_page_size);
    k.page_shift = (mask & umr::mask_page_size_5) != 0 ? wanted : (wanted & low);
  }
  if ((mask & umr::mask_start) != 0) {
    k.start = c.get(mkc::start);
  }
  if ((mask & umr::mask_pd) != 0) {
    k.pd = c.get(mkc::pd);
  }
  if ((mask & umr::mask_key) != 0) {
    k.variant = c.get(mkc::variant);
  }
  if ((mask & umr::mask_qpn) != 0) {
    k.qp = c.get(mkc::qpn) == any_qp ? rnic::none : c.get(mkc::qpn);
  }
  const auto right = [&](std::uint64_t bit, std::uint32_t flag) {
    if ((mask & bit) != 0) {
      k.access = (k.access & ~flag) | (key_access(c) & flag);
    }
  };
  right(umr::mask_local_read, rnic::key_local_read);
  right(umr::mask_local_write, rnic::key_local_write);
  right(umr::mask_remote_read, rnic::key_remote_read);
  right(umr::mask_remote_write, rnic::key_remote_write);
  right(umr::mask_atomic, rnic::key_remote_atomic);
  if ((mask & umr::mask_free) != 0) {
    k.state = c.get(mkc::free) != 0 ? rnic::KeyState::free : rnic::KeyState::valid;
  }
  return k.state == rnic::KeyState::free || k.mode != rnic::KeyMode::pages || k.page_shift >= 12;
}

void Firmware::start_work_list() {
  work_.chunk = work_.bytes < local::work_bytes ? work_.bytes : local::work_bytes;
  start_dma(work_channel, work_.function, reg::DmaCommand::read, work_.address, local::work, work_.chunk);
}

void Firmware::load_work_list(std::uint32_t at, std::uint32_t octwords) {
  const Mkey& mkey = mkeys[work_.key];
  const bool pages = work_.context.mode == rnic::KeyMode::pages;
  reg::BulkFormat format = reg::BulkFormat::page_flags;
  if (!pages) {
    format = mkey.kind == mkc::mode_keys ? reg::BulkFormat::keys : reg::BulkFormat::fixed_keys;
  }
  load_list(work_.function, at, work_.entry, pages ? octwords * words_per_octword : octwords, format, 0);
  work_.entry += octwords * words_per_octword;
}

void Firmware::on_work_dma(bool ok) {
  if (work_.phase != WorkPhase::list) {
    return;
  }
  if (mkeys.find(work_.function, work_.key) == nullptr) {
    ok = false;  // destroyed under the request
  }
  if (!ok) {
    complete_work(WorkResult::local_protection);
    return;
  }
  load_work_list(local::work, work_.chunk / octword);
  work_.bytes -= work_.chunk;
  work_.address += work_.chunk;
  if (work_.bytes > 0) {
    start_work_list();
    return;
  }
  apply_work();
}

void Firmware::apply_work() {
  Mkey& mkey = mkeys[work_.key];
  if (work_.change_context) {
    if (write_context(ContextKind::mkey, work_.key, &work_.context, sizeof work_.context) != ContextStatus::ok) {
      complete_work(WorkResult::local_qp_operation);
      return;
    }
    if (mkey.pd != work_.context.pd) {
      refer(pds, mkey.pd, -1);
      refer(pds, work_.context.pd, 1);
      mkey.pd = work_.context.pd;
    }
    mkey.variant = static_cast<std::uint8_t>(work_.context.variant);
  }
  work_.phase = WorkPhase::draining;
  on_work_drained();
}

// A revoked page may be given back as soon as the request completes: what was under way through the key ends first.
void Firmware::on_work_drained() {
  if (work_.phase != WorkPhase::draining) {
    return;
  }
  if (context_op(ContextKind::mkey, work_.key, ContextOp::query) != ContextStatus::draining) {
    complete_work(WorkResult::success);
    return;
  }
  std::uint64_t now = read32(hal_, reg::time_low);
  now |= static_cast<std::uint64_t>(read32(hal_, reg::time_high)) << 32;
  now += drain_poll_us;
  write32(hal_, reg::timer_low, static_cast<std::uint32_t>(now));
  write32(hal_, reg::timer_high, static_cast<std::uint32_t>(now >> 32));
}

}  // namespace orrery::firmware
