// The model of probe_registers.h.
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include <tlm_utils/simple_initiator_socket.h>
#include <tlm_utils/simple_target_socket.h>

#include "probe_registers.h"
#include "systemc_models/plugin/tlm_device.h"

namespace {

namespace probe = orrery::test::probe;

// A payload with the memory manager that nb_transport wants.
struct Managed final : tlm::tlm_mm_interface {
  tlm::tlm_generic_payload payload{this};
  orrery::models::DmaExtension extension;
  unsigned worker = 0;
  bool in_use = false;
  void free(tlm::tlm_generic_payload* given) override {
    given->clear_extension(&extension);
    in_use = false;
  }
};

class Probe final : public sc_core::sc_module {
 public:
  tlm_utils::simple_target_socket<Probe> registers{"registers"};
  tlm_utils::simple_target_socket<Probe, 512> memory{"memory"};
  tlm_utils::simple_target_socket<Probe> narrow{"narrow"};
  tlm_utils::simple_initiator_socket<Probe> dma{"dma"};
  tlm_utils::simple_initiator_socket<Probe, 128> fast_dma{"fast_dma"};  // nb_transport
  sc_core::sc_out<bool> interrupt{"interrupt"};

  Probe(const sc_core::sc_module_name& name, orrery::models::TlmSlot& slot) : sc_module(name), slot_(slot) {
    registers.register_b_transport(this, &Probe::access_registers);
    memory.register_b_transport(this, &Probe::access_memory);
    narrow.register_b_transport(this, &Probe::access_memory);
    fast_dma.register_nb_transport_bw(this, &Probe::response);
    for (unsigned i = 0; i < 4; ++i) {
      threads_[i] = sc_core::sc_spawn([this, i] { work(i); }, ("worker" + std::to_string(i)).c_str());
    }
    sc_core::sc_spawn_options late;
    late.spawn_method();
    late.dont_initialize();
    late.set_sensitivity(&end_response_);
    sc_core::sc_spawn([this] { answer_late(); }, "answer_late", &late);
    sc_core::sc_spawn_options killer;
    killer.spawn_method();
    killer.dont_initialize();
    killer.set_sensitivity(&kill_);
    sc_core::sc_spawn([this] { threads_[word(probe::kill) & 3].kill(); }, "killer", &killer);
    sc_core::sc_spawn_options thrower;
    thrower.spawn_method();
    thrower.dont_initialize();
    thrower.set_sensitivity(&throw_);
    sc_core::sc_spawn([] { throw std::runtime_error("thrown by a process"); }, "thrower", &thrower);
    sc_core::sc_spawn_options begin;
    begin.spawn_method();
    begin.dont_initialize();
    begin.set_sensitivity(&begin_requests_);
    sc_core::sc_spawn([this] { begin_requests(); }, "begin_requests", &begin);
  }

  void reset() {
    const std::uint64_t resets = word(probe::resets) + 1;
    words_ = {};
    word(probe::resets) = resets;
    wanted_ = {};
  }

 private:
  std::uint64_t& word(std::uint64_t offset) { return words_[offset / 8]; }
  std::uint64_t& result(unsigned worker, std::uint64_t offset) {
    return word(probe::results + worker * probe::result_size + offset);
  }

  void access_registers(tlm::tlm_generic_payload& payload, sc_core::sc_time& delay) {
    const std::uint64_t offset = payload.get_address();
    const std::uint64_t at = offset & ~std::uint64_t{7};
    if (payload.get_data_length() > 8 || (offset & 7) + payload.get_data_length() > 8 ||
        delay != sc_core::SC_ZERO_TIME) {
      payload.set_response_status(tlm::TLM_BURST_ERROR_RESPONSE);
      return;
    }
    if (at == probe::throws) {
      throw std::runtime_error("thrown on purpose");
    }
    if (at == probe::waits) {
      sc_core::wait(1, sc_core::SC_NS);
    }
    if (at == probe::dma_inside) {
      transport(0);
    }
    if (at == probe::slow) {
      delay += sc_core::sc_time(static_cast<double>(word(probe::delay_ns)), sc_core::SC_NS);
    }
    if (at == probe::fail) {
      payload.set_response_status(
          static_cast<tlm::tlm_response_status>(static_cast<std::int64_t>(word(probe::answer))));
      return;
    }
    auto* bytes = reinterpret_cast<unsigned char*>(&words_[at / 8]) + (offset & 7);
    payload.set_response_status(tlm::TLM_OK_RESPONSE);
    if (payload.is_read()) {
      std::memcpy(payload.get_data_ptr(), bytes, payload.get_data_length());
      return;
    }
    std::memcpy(bytes, payload.get_data_ptr(), payload.get_data_length());
    if (at == probe::send_msix) {
      slot_.msix(static_cast<unsigned>(word(at)));
    } else if (at == probe::raise_irq) {
      interrupt.write(word(at) != 0);
    } else if (at == probe::throw_in_process) {
      throw_.notify(sc_core::SC_ZERO_TIME);
    } else if (at == probe::kill) {
      kill_.notify(sc_core::SC_ZERO_TIME);  // from a process: the kernel can't do it while it stands
    } else if (at == probe::start) {
      if (word(at) == probe::start_blocking) {
        for (unsigned i = 0; i < word(probe::workers); ++i) {
          wanted_[i] = true;
        }
        go_.notify(sc_core::SC_ZERO_TIME);
      } else {
        begin_requests_.notify(sc_core::SC_ZERO_TIME);
      }
    }
  }

  void access_memory(tlm::tlm_generic_payload& payload, sc_core::sc_time& /*delay*/) {
    word(probe::last_length) = payload.get_data_length();
    ++word(probe::accesses);
    unsigned char* bytes = buffer_.data() + payload.get_address();
    if (payload.is_read()) {
      std::memcpy(payload.get_data_ptr(), bytes, payload.get_data_length());
    } else {
      std::memcpy(bytes, payload.get_data_ptr(), payload.get_data_length());
    }
    payload.set_response_status(tlm::TLM_OK_RESPONSE);
  }

  void prepare(tlm::tlm_generic_payload& payload, orrery::models::DmaExtension& extension, unsigned worker) {
    const std::uint64_t flags = word(probe::flags);
    const auto length = static_cast<unsigned>(word(probe::length));
    payload.set_command((flags & probe::flag_ignore) != 0  ? tlm::TLM_IGNORE_COMMAND
                        : (flags & probe::flag_write) != 0 ? tlm::TLM_WRITE_COMMAND
                                                           : tlm::TLM_READ_COMMAND);
    payload.set_address(word(probe::address) + worker * word(probe::length));
    payload.set_data_ptr(buffer_.data() + worker * length);
    payload.set_data_length(length);
    payload.set_streaming_width((flags & probe::flag_streaming) != 0 ? length - 1 : length);
    payload.set_byte_enable_ptr((flags & probe::flag_byte_enables) != 0 ? &enable_ : nullptr);
    payload.set_byte_enable_length(1);
    payload.set_response_status(tlm::TLM_INCOMPLETE_RESPONSE);
    if ((flags & probe::flag_no_extension) == 0) {
      extension = {};
      extension.confirm = (flags & probe::flag_confirm) != 0;
      extension.at = (flags & probe::flag_translated) != 0 ? orrery::pcie::AddressType::translated
                                                           : orrery::pcie::AddressType::untranslated;
      payload.set_extension(&extension);
    }
  }

  void finish(const tlm::tlm_generic_payload& payload, const orrery::models::DmaExtension& extension, unsigned worker) {
    result(worker, probe::result_response) =
        static_cast<std::uint64_t>(std::int64_t{payload.get_response_status()} + 16);
    result(worker, probe::result_status) = static_cast<std::uint64_t>(extension.status);
    result(worker, probe::result_failed_address) = extension.failed_address;
    result(worker, probe::result_cancelled) = extension.cancelled ? 1 : 0;
    result(worker, probe::result_started) = extension.started.count;
    result(worker, probe::result_finished) = extension.finished.count;
    result(worker, probe::result_returned) = sc_core::sc_time_stamp().value();
    ++result(worker, probe::result_ended);
    if (worker == 0 && (word(probe::flags) & probe::flag_interrupt) != 0) {
      slot_.msix(0);
    }
  }

  void transport(unsigned worker) {
    auto extension = std::make_unique<orrery::models::DmaExtension>();
    tlm::tlm_generic_payload payload;
    struct TakeOff {
      tlm::tlm_generic_payload& from;
      orrery::models::DmaExtension* extension;
      ~TakeOff() { from.clear_extension(extension); }
    } take_off{payload, extension.get()};
    prepare(payload, *extension, worker);
    sc_core::sc_time delay(static_cast<double>(word(probe::annotated_ns)), sc_core::SC_NS);
    dma->b_transport(payload, delay);
    if (delay == sc_core::SC_ZERO_TIME) {  // else the rule is broken: the test then misses the end
      finish(payload, *extension, worker);
    }
  }

  void work(unsigned worker) {
    while (true) {
      while (!wanted_[worker]) {
        sc_core::wait(go_);
      }
      wanted_[worker] = false;
      transport(worker);
    }
  }

  void begin_requests() {
    for (unsigned i = 0; i < word(probe::workers); ++i) {
      Managed& managed = managed_[i];
      if (managed.in_use) {
        continue;
      }
      managed.in_use = true;
      managed.worker = i;
      managed.payload.acquire();
      prepare(managed.payload, managed.extension, i);
      tlm::tlm_phase phase = tlm::BEGIN_REQ;
      sc_core::sc_time delay(static_cast<double>(word(probe::annotated_ns)), sc_core::SC_NS);
      const tlm::tlm_sync_enum answer = fast_dma->nb_transport_fw(managed.payload, phase, delay);
      if (answer == tlm::TLM_COMPLETED) {
        finish(managed.payload, managed.extension, i);
        managed.payload.release();
      } else if (answer != tlm::TLM_UPDATED || phase != tlm::END_REQ) {
        SC_REPORT_FATAL("probe", "BEGIN_REQ must be answered with END_REQ");
      }
    }
  }

  tlm::tlm_sync_enum response(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase, sc_core::sc_time& delay) {
    if (phase != tlm::BEGIN_RESP || delay != sc_core::SC_ZERO_TIME || late_ != nullptr) {
      SC_REPORT_FATAL("probe", "unexpected phase, delay or response");
    }
    for (Managed& managed : managed_) {
      if (&managed.payload == &payload) {
        finish(payload, managed.extension, managed.worker);
      }
    }
    const std::uint64_t how = word(probe::start);
    if (how == probe::start_accepted) {
      late_ = &payload;
      end_response_.notify(sc_core::sc_time(100, sc_core::SC_NS));
      return tlm::TLM_ACCEPTED;
    }
    payload.release();
    if (how == probe::start_updated) {
      phase = tlm::END_RESP;
      return tlm::TLM_UPDATED;
    }
    return tlm::TLM_COMPLETED;
  }

  void answer_late() {
    tlm::tlm_phase phase = tlm::END_RESP;
    sc_core::sc_time delay = sc_core::SC_ZERO_TIME;
    tlm::tlm_generic_payload* payload = std::exchange(late_, nullptr);
    fast_dma->nb_transport_fw(*payload, phase, delay);
    payload->release();
  }

  orrery::models::TlmSlot& slot_;
  std::array<std::uint64_t, 512> words_{};
  std::vector<unsigned char> buffer_ = std::vector<unsigned char>(probe::buffer_size);
  std::array<bool, 4> wanted_{};
  std::array<sc_core::sc_process_handle, 4> threads_;
  std::array<Managed, 4> managed_;
  tlm::tlm_generic_payload* late_ = nullptr;
  unsigned char enable_ = TLM_BYTE_ENABLED;
  sc_core::sc_event go_, begin_requests_, end_response_, kill_, throw_;
};

std::unique_ptr<sc_core::sc_module> create(orrery::models::TlmSlot& slot) {
  slot.function.identity.vendor_id = 0x1234;
  slot.function.identity.device_id = 0x0efe;
  slot.function.bars[0].size = 4096;
  slot.function.bars[2] = {.size = probe::buffer_size, .is_64bit = true, .prefetchable = true, .max_access = 0};
  slot.function.bars[4] = {.size = 4096, .max_access = 2};
  slot.function.msix_vectors = 2;
  slot.function.serial = 0x0200'0000'1234'5678;
  slot.function.ats = slot.parameters.boolean("ats", false);
  auto device = std::make_unique<Probe>(slot.module_name(), slot);
  slot.bind_bar(0, device->registers);
  slot.bind_bar(2, device->memory);
  slot.bind_bar(4, device->narrow);
  slot.bind_dma(device->dma);
  slot.bind_dma(device->fast_dma);
  device->interrupt.bind(slot.irq(1));
  slot.on_reset([model = device.get()] { model->reset(); });
  return device;
}

}  // namespace

ORRERY_TLM_DEVICE("probe", create)
