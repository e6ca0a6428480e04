// One DMA in one call, for models that have no payload handling of their own.
#pragma once

#include <cstdint>

#include <systemc>
#include <tlm>

#include "systemc_models/plugin/dma_extension.h"

namespace orrery::models {

// A b_transport on `socket` (any initiator socket), from an SC_THREAD; returns the response status. The rules are
// tlm_device.h's. `extension`, if given, carries attributes in and results out.
template <class Socket>
tlm::tlm_response_status dma_transfer(Socket& socket, tlm::tlm_command command, std::uint64_t address, void* bytes,
                                      unsigned length, DmaExtension* extension = nullptr) {
  tlm::tlm_generic_payload payload;
  payload.set_command(command);
  payload.set_address(address);
  payload.set_data_ptr(static_cast<unsigned char*>(bytes));
  payload.set_data_length(length);
  payload.set_streaming_width(length);
  if (extension != nullptr) {
    payload.set_extension(extension);
  }
  // The payload's destructor would delete an extension that it still holds when the thread is killed inside.
  struct TakeOff {
    tlm::tlm_generic_payload& from;
    DmaExtension* extension;
    ~TakeOff() {
      if (extension != nullptr) {
        from.clear_extension(extension);
      }
    }
  } take_off{payload, extension};
  sc_core::sc_time delay = sc_core::SC_ZERO_TIME;
  socket->b_transport(payload, delay);
  return payload.get_response_status();
}

// True if the bytes have arrived.
template <class Socket>
[[nodiscard]] bool dma_read(Socket& socket, std::uint64_t address, void* into, unsigned length) {
  return dma_transfer(socket, tlm::TLM_READ_COMMAND, address, into, length) == tlm::TLM_OK_RESPONSE;
}

// True if the bytes have left; with `confirm`, if they have arrived (one more round trip for each 4 KiB page).
template <class Socket>
[[nodiscard]] bool dma_write(Socket& socket, std::uint64_t address, const void* from, unsigned length,
                             bool confirm = false) {
  DmaExtension extension;
  extension.confirm = confirm;
  return dma_transfer(socket, tlm::TLM_WRITE_COMMAND, address, const_cast<void*>(from), length, &extension) ==
         tlm::TLM_OK_RESPONSE;
}

}  // namespace orrery::models
