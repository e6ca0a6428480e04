// A checksum accelerator: reads a range of memory by DMA, computes its CRC32C (RFC 3720, appendix B.4), writes a
// record and raises an interrupt. An ordinary SystemC/TLM-2.0 module; only create() knows about Orrery.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include <tlm_utils/simple_initiator_socket.h>
#include <tlm_utils/simple_target_socket.h>

#include "crc32c_registers.h"
#include "systemc_models/plugin/dma_call.h"
#include "systemc_models/plugin/tlm_device.h"

namespace {

class Crc32cDevice final : public sc_core::sc_module {
 public:
  tlm_utils::simple_target_socket<Crc32cDevice> registers{"registers"};
  tlm_utils::simple_initiator_socket<Crc32cDevice> dma{"dma"};
  sc_core::sc_out<bool> interrupt{"interrupt"};

  SC_HAS_PROCESS(Crc32cDevice);
  Crc32cDevice(const sc_core::sc_module_name& name, sc_core::sc_time per_byte) : sc_module(name), per_byte_(per_byte) {
    registers.register_b_transport(this, &Crc32cDevice::access);
    SC_THREAD(work);
  }

  void reset() {
    std::fill(words_.begin(), words_.end(), 0U);
    ++run_;  // what is under way stops at its next DMA
  }

 private:
  void access(tlm::tlm_generic_payload& payload, sc_core::sc_time& delay) {
    delay += sc_core::sc_time(20, sc_core::SC_NS);
    const std::size_t word = payload.get_address() / 4;
    if (payload.get_data_length() != 4 || word >= words_.size()) {
      payload.set_response_status(tlm::TLM_ADDRESS_ERROR_RESPONSE);
      return;
    }
    payload.set_response_status(tlm::TLM_OK_RESPONSE);
    if (payload.is_read()) {
      const std::uint32_t value = word == CRC32C_ID / 4 ? CRC32C_ID_VALUE : words_[word];
      std::memcpy(payload.get_data_ptr(), &value, 4);
      return;
    }
    std::uint32_t value = 0;
    std::memcpy(&value, payload.get_data_ptr(), 4);
    if (word == CRC32C_CONTROL / 4 && (value & CRC32C_START) != 0 && status() != CRC32C_BUSY) {
      status() = CRC32C_BUSY;
      start_.notify(sc_core::SC_ZERO_TIME);
    } else if (word >= CRC32C_SOURCE / 4 && word < CRC32C_CONTROL / 4 && status() != CRC32C_BUSY) {
      words_[word] = value;
    }
  }

  void work() {
    while (true) {
      while (status() != CRC32C_BUSY) {
        wait(start_);
      }
      interrupt.write(false);
      const std::uint64_t run = run_;
      const std::uint32_t result = checksum(run);
      if (run == run_) {  // else a reset came: the registers belong to the next run
        status() = result;
        interrupt.write(true);
      }
    }
  }

  std::uint32_t checksum(std::uint64_t run) {
    const std::uint64_t length = wide(CRC32C_LENGTH);
    std::uint32_t crc = 0xffff'ffffU;
    for (std::uint64_t done = 0; done < length;) {
      const auto bytes = static_cast<unsigned>(std::min<std::uint64_t>(length - done, buffer_.size()));
      if (!orrery::models::dma_read(dma, wide(CRC32C_SOURCE) + done, buffer_.data(), bytes)) {
        return CRC32C_FAILED;
      }
      for (unsigned i = 0; i < bytes; ++i) {
        crc ^= buffer_[i];
        for (int bit = 0; bit < 8; ++bit) {
          crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0x82f6'3b78U : 0U);
        }
      }
      wait(bytes * per_byte_);
      if (run != run_) {
        return CRC32C_FAILED;
      }
      done += bytes;
    }
    const crc32c_record record{~crc, CRC32C_DONE, length};
    if (!orrery::models::dma_write(dma, wide(CRC32C_RECORD), &record, sizeof(record), true)) {
      return CRC32C_FAILED;
    }
    words_[CRC32C_RESULT / 4] = record.crc;
    return CRC32C_DONE;
  }

  std::uint32_t& status() { return words_[CRC32C_STATUS / 4]; }
  std::uint64_t wide(unsigned offset) const {
    return words_[offset / 4] | (std::uint64_t{words_[offset / 4 + 1]} << 32);
  }

  sc_core::sc_time per_byte_;
  std::array<std::uint32_t, 11> words_{};  // the register file
  std::vector<unsigned char> buffer_ = std::vector<unsigned char>(64 * 1024);
  sc_core::sc_event start_;
  std::uint64_t run_ = 0;  // counts resets
};

std::unique_ptr<sc_core::sc_module> create(orrery::models::TlmSlot& slot) {
  slot.function.identity.vendor_id = CRC32C_VENDOR_ID;
  slot.function.identity.device_id = CRC32C_DEVICE_ID;
  slot.function.identity.class_code = 0x12'0000;  // processing accelerator
  slot.function.bars[0] = {.size = 4096, .max_access = 4};
  slot.function.msix_vectors = 1;
  const std::uint64_t per_byte = slot.parameters.integer("byte_ps", 100, 0, 1'000'000);
  auto device =
      std::make_unique<Crc32cDevice>(slot.module_name(), sc_core::sc_time::from_value(slot.timed() ? per_byte : 0));
  slot.bind_bar(0, device->registers);
  slot.bind_dma(device->dma);
  device->interrupt.bind(slot.irq(0));
  slot.on_reset([model = device.get()] { model->reset(); });
  return device;
}

}  // namespace

ORRERY_TLM_DEVICE("CRC32C accelerator", create)
