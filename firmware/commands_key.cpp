// Memory keys.
#include "firmware/commands.h"

namespace orrery::firmware {

namespace reg = rnic::reg;
using namespace layout;
using reg::ContextOp;
using reg::ContextStatus;
using rnic::ContextKind;

namespace {

constexpr std::uint32_t context_at = 0x10;
constexpr std::uint32_t any_qp = 0xff'ffff;
constexpr std::uint32_t words_per_octword = 2;  // 16 bytes: two page entries, or one element of a key list
// Lists are kept in units of 64 bytes: drivers pad what they write with UMR to that, beyond the capacity they asked
// for.
constexpr std::uint32_t octwords_per_unit = 4;

}  // namespace

bool key_mode(std::uint32_t access_mode, rnic::KeyMode& mode) {
  switch (access_mode) {
    case mkc::mode_physical:
      mode = rnic::KeyMode::physical;
      return true;
    case mkc::mode_pages:
      mode = rnic::KeyMode::pages;
      return true;
    case mkc::mode_keys:
    case mkc::mode_fixed_keys:
      mode = rnic::KeyMode::indirect;
      return true;
    default:
      return false;
  }
}

std::uint32_t key_access(const View& c) {
  return (c.get(mkc::local_read) != 0 ? rnic::key_local_read : 0U) |
         (c.get(mkc::local_write) != 0 ? rnic::key_local_write : 0U) |
         (c.get(mkc::remote_read) != 0 ? rnic::key_remote_read : 0U) |
         (c.get(mkc::remote_write) != 0 ? rnic::key_remote_write : 0U) |
         (c.get(mkc::remote_atomic) != 0 ? rnic::key_remote_atomic : 0U);
}

Result create_mkey(Firmware& fw, Function& function) {
  const View c = fw.input().at(context_at);
  const std::uint32_t access_mode = c.get(mkc::mode_high) << 2 | c.get(mkc::mode_low);
  rnic::MkeyContext k;
  if (!key_mode(access_mode, k.mode)) {
    return failed(Status::bad_parameter, Syndrome::unsupported);
  }
  const std::uint32_t qp = c.get(mkc::qpn);
  k.state = c.get(mkc::free) != 0 ? rnic::KeyState::free : rnic::KeyState::valid;
  k.function = function.number;
  k.pd = c.get(mkc::pd);
  k.access = key_access(c);
  k.variant = c.get(mkc::variant);
  k.qp = qp == any_qp ? rnic::none : qp;
  k.start = c.get(mkc::start);
  k.length = c.get(mkc::length);
  k.whole_space = c.get(mkc::whole_space);
  k.translated = c.get(mkc::translated) == 1 ? 1 : 0;
  if (fw.pds.find(function.number, k.pd) == nullptr) {
    return failed(Status::bad_resource, Syndrome::pd);
  }
  const std::uint32_t octwords = c.get(mkc::octwords);
  const std::uint32_t given = fw.input().get(mkc::actual_octwords);
  if (k.mode != rnic::KeyMode::physical) {
    k.page_shift = c.get(mkc::log_page_size);
    const bool has_pages = k.mode == rnic::KeyMode::pages || access_mode == mkc::mode_fixed_keys;
    if (k.state == rnic::KeyState::valid && has_pages && (k.page_shift < 12 || k.page_shift > 63)) {
      return failed(Status::bad_parameter, Syndrome::value);
    }
    if (octwords > (1U << TranslationPool::log_largest) / words_per_octword || given > octwords) {
      return failed(Status::bad_parameter, Syndrome::size);
    }
    if (page_list + static_cast<std::uint64_t>(given) * 16 > fw.input_length()) {
      return failed(Status::bad_input_length, Syndrome::list_length);
    }
  }
  const std::uint32_t index = fw.mkeys.allocate(function.number);
  if (index == 0) {
    return failed(Status::no_resources, Syndrome::exhausted);
  }
  Mkey& mkey = fw.mkeys[index];
  Result result;
  if (k.mode != rnic::KeyMode::physical && octwords > 0) {
    const std::uint32_t units = (octwords + octwords_per_unit - 1) / octwords_per_unit;
    if (!fw.allocate_run(units * octwords_per_unit * words_per_octword, mkey.run)) {
      fw.mkeys.release(index);
      return failed(Status::no_resources, Syndrome::no_translation);
    }
    k.translation = mkey.run.start;
    k.translation_count = mkey.run.entries;
    // What the driver doesn't give isn't present.
    ContextStatus status =
        fw.load_list(function.number, 0, k.translation, k.translation_count, reg::BulkFormat::fill, 0);
    if (status == ContextStatus::ok && given > 0) {
      const bool flags_in_list = fw.input().get(mkc::page_access) != 0;
      reg::BulkFormat format = flags_in_list ? reg::BulkFormat::page_flags : reg::BulkFormat::pages;
      if (k.mode == rnic::KeyMode::indirect) {
        format = access_mode == mkc::mode_keys ? reg::BulkFormat::keys : reg::BulkFormat::fixed_keys;
      }
      status = fw.load_list(function.number, local::input + page_list, k.translation,
                            k.mode == rnic::KeyMode::pages ? given * words_per_octword : given, format,
                            static_cast<std::uint32_t>(rnic::translation::readable | rnic::translation::writable));
    }
    result = from_hardware(status);
  }
  if (result.status == Status::ok) {
    result = from_hardware(fw.write_context(ContextKind::mkey, index, &k, sizeof k));
  }
  if (result.status != Status::ok) {
    fw.release_run(mkey.run);
    fw.mkeys.release(index);
    return result;
  }
  mkey.pd = k.pd;
  mkey.kind = static_cast<std::uint8_t>(access_mode);
  mkey.umr_enabled = static_cast<std::uint8_t>(c.get(mkc::umr_enabled));
  mkey.variant = static_cast<std::uint8_t>(k.variant);
  Firmware::refer(fw.pds, mkey.pd, 1);
  fw.give_handle(index);
  return {};
}

Result destroy_mkey(Firmware& fw, Function& function) {
  if (fw.mkeys.find(function.number, fw.handle()) == nullptr) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  const Result begun = begin_destroy(fw, fw.mkeys, fw.handle(), ContextKind::mkey);
  return begun.pending ? begun : finish_destroy_mkey(fw, function);
}

Result finish_destroy_mkey(Firmware& fw, Function& /*function*/) {
  const std::uint32_t index = fw.remembered();
  Result result;
  if (fw.context_op(ContextKind::mkey, index, ContextOp::query) == ContextStatus::draining) {
    result.pending = true;
    return result;
  }
  Mkey& mkey = fw.mkeys[index];
  fw.release_run(mkey.run);
  Firmware::refer(fw.pds, mkey.pd, -1);
  fw.mkeys.release(index);
  return result;
}

Result query_mkey(Firmware& fw, Function& function) {
  const std::uint32_t index = fw.handle();
  const Mkey* mkey = fw.mkeys.find(function.number, index);
  if (mkey == nullptr) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  rnic::MkeyContext k;
  const ContextStatus status = fw.read_context(ContextKind::mkey, index, &k, sizeof k);
  const View c = fw.output().at(context_at);
  const auto has = [&](rnic::KeyAccess right) { return (k.access & right) != 0 ? 1U : 0U; };
  c.set(mkc::free, k.state == rnic::KeyState::free ? 1 : 0);
  c.set(mkc::mode_low, mkey->kind);
  c.set(mkc::umr_enabled, mkey->umr_enabled);
  c.set(mkc::local_read, has(rnic::key_local_read));
  c.set(mkc::local_write, has(rnic::key_local_write));
  c.set(mkc::remote_read, has(rnic::key_remote_read));
  c.set(mkc::remote_write, has(rnic::key_remote_write));
  c.set(mkc::remote_atomic, has(rnic::key_remote_atomic));
  c.set(mkc::translated, k.translated);
  c.set(mkc::qpn, k.qp == rnic::none ? any_qp : k.qp);
  c.set(mkc::variant, k.variant);
  c.set(mkc::whole_space, k.whole_space);
  c.set(mkc::pd, k.pd);
  c.set(mkc::start, k.start);
  c.set(mkc::length, k.length);
  c.set(mkc::octwords, mkey->run.entries / words_per_octword);
  c.set(mkc::log_page_size, k.page_shift);
  return from_hardware(status);
}

Result page_fault_resume(Firmware& fw, Function& function) {
  const std::uint32_t token = fw.input().word(0x0c) & 0xff'ffffU;
  const std::uint32_t error = fw.input().word(0x08) >> 31;
  rnic::FaultRecord fault;
  if (fw.read_context(ContextKind::fault, token, &fault, sizeof fault) != ContextStatus::ok ||
      fault.function != function.number) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  return from_hardware(fw.context_op(ContextKind::fault, token, ContextOp::resume_fault, error));
}

}  // namespace orrery::firmware
