#include "systemc_models/rnic/rnic_core.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/error.h"
#include "systemc_models/device_identity.h"

namespace orrery::models {

RnicCore::RnicCore(const RnicConfig& config) : config_(config), engine_(*this) {
  if (config.index > 0xffff || config.server > 0xffff) {
    throw Error(fmt::format("{}: index {} or server number {} is too large", config.name, config.index, config.server),
                "give numbers from 0 to 65535");
  }
}

void RnicCore::attach(pcie::DevicePort& port) {
  port_ = &port;
  engine_.attach(port);
}

Picoseconds RnicCore::access_time(unsigned bar) const {
  static_cast<void>(bar);
  return config_.register_access;
}

void RnicCore::bar_read(unsigned bar, std::uint64_t offset, std::span<std::byte> into) {
  if (bar != ORRERY_RNIC_BAR_REGISTERS) {
    // The MSI-X table and PBA of BAR4 live in the VMM; here is nothing but the room for them.
    std::fill(into.begin(), into.end(), std::byte{0});
    return;
  }
  read_registers(offset, into, [this](std::uint64_t at) { return read_word(at); });
}

void RnicCore::bar_write(unsigned bar, std::uint64_t offset, std::span<const std::byte> from) {
  if (bar != ORRERY_RNIC_BAR_REGISTERS) {
    return;
  }
  if (!write_registers(offset, from, [this](std::uint64_t at, std::uint32_t word) { write_word(at, word); })) {
    ++writes_ignored_;
  }
}

std::uint32_t RnicCore::status() const {
  if (engine_.running()) {
    return ORRERY_RNIC_STATUS_RUNNING;
  }
  if (!tested_) {
    return ORRERY_RNIC_STATUS_IDLE;
  }
  return engine_.result().error == ORRERY_RNIC_ERROR_NONE ? ORRERY_RNIC_STATUS_PASSED : ORRERY_RNIC_STATUS_FAILED;
}

std::uint32_t RnicCore::read_identification(std::uint64_t offset) const {
  switch (offset) {
    case ORRERY_RNIC_ID:
      return ORRERY_RNIC_ID_VALUE;
    case ORRERY_RNIC_VERSION:
      return ORRERY_RNIC_VERSION_VALUE;
    case ORRERY_RNIC_INDEX:
      return config_.index;
    case ORRERY_RNIC_FEATURES:
      return port_->simulation().timed ? ORRERY_RNIC_FEATURE_TIMED : 0U;
    case ORRERY_RNIC_SERIAL:
    case ORRERY_RNIC_SERIAL + 4:
      return half_of(orrery_serial(ORRERY_SERIAL_KIND_RNIC, config_.server, config_.index), offset);
    case ORRERY_RNIC_VECTORS:
      return ORRERY_RNIC_VECTOR_COUNT;
    case ORRERY_RNIC_SCRATCH:
      return scratch_;
    default:
      return 0;
  }
}

std::uint32_t RnicCore::read_test(std::uint64_t offset) const {
  switch (offset) {
    case ORRERY_RNIC_TEST_STATUS:
      return status();
    case ORRERY_RNIC_TEST_OPERATION:
      return test_.operation;
    case ORRERY_RNIC_TEST_VECTOR:
      return test_vector_;
    case ORRERY_RNIC_TEST_ADDRESS:
    case ORRERY_RNIC_TEST_ADDRESS + 4:
      return half_of(test_.address, offset);
    case ORRERY_RNIC_TEST_LENGTH:
    case ORRERY_RNIC_TEST_LENGTH + 4:
      return half_of(test_.length, offset);
    case ORRERY_RNIC_TEST_SEED:
    case ORRERY_RNIC_TEST_SEED + 4:
      return half_of(test_.seed, offset);
    case ORRERY_RNIC_TEST_LOOPS:
      return test_.loops;
    default:
      return 0;
  }
}

std::uint32_t RnicCore::read_result(std::uint64_t offset) const {
  const SelfTestResult& result = engine_.result();
  switch (offset) {
    case ORRERY_RNIC_RESULT_ERROR:
      return result.error;
    case ORRERY_RNIC_RESULT_COMPLETION:
      return result.completion;
    case ORRERY_RNIC_RESULT_ADDRESS:
    case ORRERY_RNIC_RESULT_ADDRESS + 4:
      return half_of(result.address, offset);
    case ORRERY_RNIC_RESULT_EXPECTED:
      return result.expected;
    case ORRERY_RNIC_RESULT_FOUND:
      return result.found;
    case ORRERY_RNIC_RESULT_LOOPS:
      return result.loops;
    case ORRERY_RNIC_RESULT_CHECKSUM:
    case ORRERY_RNIC_RESULT_CHECKSUM + 4:
      return half_of(result.checksum, offset);
    case ORRERY_RNIC_RESULT_START:
    case ORRERY_RNIC_RESULT_START + 4:
      return half_of(result.start.count, offset);
    case ORRERY_RNIC_RESULT_END:
    case ORRERY_RNIC_RESULT_END + 4:
      return half_of(result.end.count, offset);
    default:
      return 0;
  }
}

std::uint64_t RnicCore::counter(std::uint64_t offset) const {
  switch (offset) {
    case ORRERY_RNIC_WRITES_COUNTED:
      return writes_counted_;
    case ORRERY_RNIC_WRITES_SUM:
      return writes_sum_;
    case ORRERY_RNIC_WRITES_LAST:
      return writes_last_;
    case ORRERY_RNIC_WRITES_IGNORED:
      return writes_ignored_;
    default:
      return port_counter(port_->counters(), (offset - ORRERY_RNIC_WRITE_BYTES_SENT) / 8);
  }
}

std::uint32_t RnicCore::read_word(std::uint64_t offset) {
  if (offset == ORRERY_RNIC_TIME || offset == ORRERY_RNIC_TIME + 4) {
    return latch_.read(offset, port_->simulation().now().count);
  }
  if (offset == ORRERY_RNIC_INTERRUPT_ENABLE) {
    return interrupt_enable_;
  }
  if (offset == ORRERY_RNIC_INTERRUPT_STATUS) {
    return interrupt_status_;
  }
  if (offset < ORRERY_RNIC_TEST_CONTROL) {
    return read_identification(offset);
  }
  if (offset < ORRERY_RNIC_RESULT_ERROR) {
    return read_test(offset);
  }
  if (offset < ORRERY_RNIC_INTERRUPT_ENABLE) {
    return read_result(offset);
  }
  if (offset >= ORRERY_RNIC_WRITE_BYTES_SENT && offset < ORRERY_RNIC_WRITES_IGNORED + 8) {
    return latch_.read(offset, counter(offset & ~std::uint64_t{7}));
  }
  return 0;
}

bool RnicCore::write_setup(std::uint64_t offset, std::uint32_t value) {
  if (engine_.running()) {
    return false;
  }
  switch (offset) {
    case ORRERY_RNIC_TEST_OPERATION:
      test_.operation = value;
      return true;
    case ORRERY_RNIC_TEST_VECTOR:
      test_vector_ = value;
      return true;
    case ORRERY_RNIC_TEST_ADDRESS:
    case ORRERY_RNIC_TEST_ADDRESS + 4:
      test_.address = with_half(test_.address, offset, value);
      return true;
    case ORRERY_RNIC_TEST_LENGTH:
    case ORRERY_RNIC_TEST_LENGTH + 4:
      test_.length = with_half(test_.length, offset, value);
      return true;
    case ORRERY_RNIC_TEST_SEED:
    case ORRERY_RNIC_TEST_SEED + 4:
      test_.seed = with_half(test_.seed, offset, value);
      return true;
    case ORRERY_RNIC_TEST_LOOPS:
      test_.loops = value;
      return true;
    default:
      return false;
  }
}

void RnicCore::write_word(std::uint64_t offset, std::uint32_t value) {
  if (offset >= ORRERY_RNIC_WRITE_PAGE && offset < ORRERY_RNIC_WRITE_PAGE + ORRERY_RNIC_WRITE_PAGE_SIZE) {
    ++writes_counted_;
    writes_sum_ += value;
    writes_last_ = value;
    return;
  }
  switch (offset) {
    case ORRERY_RNIC_SCRATCH:
      scratch_ = value;
      return;
    case ORRERY_RNIC_TEST_CONTROL:
      control(value);
      return;
    case ORRERY_RNIC_INTERRUPT_ENABLE:
      interrupt_enable_ = value;
      return;
    case ORRERY_RNIC_INTERRUPT_STATUS:
      interrupt_status_ &= ~value;
      return;
    default:
      break;
  }
  if (!write_setup(offset, value)) {
    ++writes_ignored_;
  }
}

void RnicCore::control(std::uint32_t value) {
  if ((value & ORRERY_RNIC_TEST_ABORT) != 0) {
    engine_.abort();
  }
  if ((value & ORRERY_RNIC_TEST_START) == 0) {
    return;
  }
  if (engine_.running()) {
    ++writes_ignored_;
    return;
  }
  tested_ = true;
  SelfTest test = test_;
  if (test_vector_ >= ORRERY_RNIC_VECTOR_COUNT && test_vector_ != ORRERY_RNIC_NO_VECTOR) {
    test.loops = 0;  // a set-up error
  }
  engine_.begin(test);
}

void RnicCore::on_test_done() {
  if (test_vector_ >= ORRERY_RNIC_VECTOR_COUNT) {
    return;
  }
  const std::uint32_t bit = std::uint32_t{1} << test_vector_;
  interrupt_status_ |= bit;
  if ((interrupt_enable_ & bit) != 0) {
    port_->msix(test_vector_);
  }
}

void RnicCore::reset() {
  port_->cancel_all();
  engine_.reset();
  scratch_ = 0;
  test_ = {};
  test_vector_ = ORRERY_RNIC_NO_VECTOR;
  tested_ = false;
  interrupt_enable_ = 0;
  interrupt_status_ = 0;
  writes_counted_ = 0;
  writes_sum_ = 0;
  writes_last_ = 0;
  writes_ignored_ = 0;
  latch_ = {};
}

}  // namespace orrery::models
