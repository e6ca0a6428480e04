#include "systemc_models/plugin/tlm_adapter_module.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "common/error.h"
#include "pcie/capabilities.h"

namespace orrery::models {

namespace {

constexpr unsigned most_complaints = 10;

pcie::CompletionStatus completion_of(tlm::tlm_response_status status) {
  switch (status) {
    case tlm::TLM_OK_RESPONSE:
      return pcie::CompletionStatus::success;
    case tlm::TLM_ADDRESS_ERROR_RESPONSE:
    case tlm::TLM_COMMAND_ERROR_RESPONSE:
    case tlm::TLM_BURST_ERROR_RESPONSE:
    case tlm::TLM_BYTE_ENABLE_ERROR_RESPONSE:
      return pcie::CompletionStatus::unsupported_request;
    case tlm::TLM_GENERIC_ERROR_RESPONSE:
    case tlm::TLM_INCOMPLETE_RESPONSE:
      break;
  }
  return pcie::CompletionStatus::completer_abort;
}

// What is wrong with a transaction before it starts; TLM_OK_RESPONSE: nothing.
tlm::tlm_response_status refusal(const tlm::tlm_generic_payload& payload) {
  if (payload.get_command() == tlm::TLM_IGNORE_COMMAND) {
    return tlm::TLM_COMMAND_ERROR_RESPONSE;
  }
  if (payload.get_byte_enable_ptr() != nullptr) {
    return tlm::TLM_BYTE_ENABLE_ERROR_RESPONSE;
  }
  if (payload.get_data_length() == 0 || payload.get_data_ptr() == nullptr ||
      payload.get_streaming_width() < payload.get_data_length()) {
    return tlm::TLM_BURST_ERROR_RESPONSE;
  }
  return tlm::TLM_OK_RESPONSE;
}

tlm::tlm_response_status response_of(const pcie::DmaTransfer& transfer) {
  switch (transfer.status) {
    case pcie::CompletionStatus::success:
      return tlm::TLM_OK_RESPONSE;
    case pcie::CompletionStatus::unsupported_request:
      return tlm::TLM_ADDRESS_ERROR_RESPONSE;
    case pcie::CompletionStatus::retry:
    case pcie::CompletionStatus::completer_abort:
      break;
  }
  return tlm::TLM_GENERIC_ERROR_RESPONSE;
}

}  // namespace

// One initiator socket of the model.
class TlmAdapter::DmaChannel final : public tlm::tlm_fw_transport_if<> {
 public:
  DmaChannel(TlmAdapter& adapter, tlm::tlm_bw_transport_if<>& model, std::uint64_t index)
      : adapter_(adapter), model_(model), index_(index) {}

  void b_transport(tlm::tlm_generic_payload& payload, sc_core::sc_time& delay) override {
    adapter_.blocking_transfer(payload, delay);
  }

  tlm::tlm_sync_enum nb_transport_fw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                                     sc_core::sc_time& delay) override {
    if (phase == tlm::END_RESP) {
      if (responding_ == nullptr || responding_->payload != &payload) {
        SC_REPORT_ERROR("orrery/plugin", "END_RESP for a transaction that has no response under way");
        return tlm::TLM_COMPLETED;
      }
      close();
      schedule_responses();
      return tlm::TLM_COMPLETED;
    }
    if (phase != tlm::BEGIN_REQ) {
      SC_REPORT_ERROR("orrery/plugin", "a DMA socket takes the phases BEGIN_REQ and END_RESP");
      return tlm::TLM_COMPLETED;
    }
    if (!payload.has_mm()) {
      SC_REPORT_ERROR("orrery/plugin", "nb_transport needs a payload with a memory manager");
      return tlm::TLM_COMPLETED;
    }
    const tlm::tlm_response_status refused = refusal(payload);
    if (refused != tlm::TLM_OK_RESPONSE) {
      payload.set_response_status(refused);
      return tlm::TLM_COMPLETED;
    }
    payload.acquire();
    Request& request = adapter_.take_request(payload, this);
    adapter_.enter();
    if (delay == sc_core::SC_ZERO_TIME) {
      adapter_.begin(request);
    } else {
      adapter_.port_->simulation().events.schedule(adapter_.now() + Picoseconds{delay.value()}, adapter_,
                                                   (std::uint64_t{request.generation} << 32) | request.index);
    }
    adapter_.leave();
    phase = tlm::END_REQ;
    return tlm::TLM_UPDATED;
  }

  bool get_direct_mem_ptr(tlm::tlm_generic_payload& /*payload*/, tlm::tlm_dmi& /*dmi*/) override { return false; }
  unsigned transport_dbg(tlm::tlm_generic_payload& /*payload*/) override { return 0; }

  // A transaction has ended; its response goes out when those before it have been taken.
  void ended(Request& request) {
    waiting_.push_back(&request);
    schedule_responses();
  }

  void respond() {
    while (responding_ == nullptr && !waiting_.empty()) {
      responding_ = waiting_.front();
      waiting_.pop_front();
      tlm::tlm_phase phase = tlm::BEGIN_RESP;
      sc_core::sc_time delay = sc_core::SC_ZERO_TIME;
      const tlm::tlm_sync_enum answer = model_.nb_transport_bw(*responding_->payload, phase, delay);
      // The model may have closed it by END_RESP from inside the call.
      if (responding_ != nullptr &&
          (answer == tlm::TLM_COMPLETED || (answer == tlm::TLM_UPDATED && phase == tlm::END_RESP))) {
        close();
      }
    }
  }

 private:
  void schedule_responses() {
    if (responding_ == nullptr && !waiting_.empty()) {
      adapter_.enter();
      pcie::Simulation& simulation = adapter_.port_->simulation();
      simulation.events.schedule(simulation.now(), adapter_, respond_event | index_);
      adapter_.leave();
    }
  }
  void close() {
    tlm::tlm_generic_payload& payload = *responding_->payload;
    adapter_.give_back(*responding_);
    responding_ = nullptr;
    payload.release();
  }

  TlmAdapter& adapter_;
  tlm::tlm_bw_transport_if<>& model_;
  std::uint64_t index_;
  std::deque<Request*> waiting_;
  Request* responding_ = nullptr;
};

TlmAdapter::TlmAdapter(const sc_core::sc_module_name& module, std::string device_name, bool timed,
                       PluginParameters given, pcie::EventHost& host)
    : sc_module(module), TlmSlot(std::move(given)), device_name_(std::move(device_name)), timed_(timed), host_(host) {
  model_name_ = device_name_ + "_model";
  std::replace(model_name_.begin(), model_name_.end(), '.', '_');
}

TlmAdapter::~TlmAdapter() = default;

void TlmAdapter::take(std::unique_ptr<sc_core::sc_module> model) {
  model_ = std::move(model);
  for (unsigned bar = 0; bar < pcie::bar_count; ++bar) {
    const unsigned most = function.bars[bar].max_access;
    if (function.bars[bar].size != 0 && bars_[bar].model == nullptr) {
      throw Error(fmt::format("device {}: its model describes BAR{} and binds no socket to it", device_name_, bar),
                  "call bind_bar() for every BAR in the factory");
    }
    if (function.bars[bar].size == 0 && bars_[bar].model != nullptr) {
      throw Error(fmt::format("device {}: its model binds a socket to BAR{} and gives it no size", device_name_, bar),
                  fmt::format("set function.bars[{}].size in the factory", bar));
    }
    if (most > 8 || (most & (most - 1)) != 0) {
      throw Error(fmt::format("device {}: function.bars[{}].max_access = {}", device_name_, bar, most),
                  "use 1, 2, 4 or 8, or 0 for no limit");
    }
  }
}

// ---- Register accesses ----------------------------------------------------------------------------------

void TlmAdapter::connect_bar(unsigned bar, tlm::tlm_fw_transport_if<>& model,
                             sc_core::sc_port_b<tlm::tlm_bw_transport_if<>>& back) {
  if (bar >= pcie::bar_count) {
    throw Error(fmt::format("device {}: its model binds BAR{}", device_name_, bar), "a function has BAR0 to BAR5");
  }
  if (bars_[bar].model != nullptr) {
    throw Error(fmt::format("device {}: its model binds BAR{} twice", device_name_, bar), "bind one socket to a BAR");
  }
  bars_[bar].model = &model;
  back.bind(static_cast<tlm::tlm_bw_transport_if<>&>(*this));
}

tlm::tlm_sync_enum TlmAdapter::nb_transport_bw(tlm::tlm_generic_payload& /*payload*/, tlm::tlm_phase& /*phase*/,
                                               sc_core::sc_time& /*delay*/) {
  SC_REPORT_ERROR("orrery/plugin", "nb_transport_bw on a BAR's socket: registers are accessed by b_transport");
  return tlm::TLM_ACCEPTED;
}

tlm::tlm_response_status TlmAdapter::call_model(Bar& bar, tlm::tlm_command command, std::uint64_t offset,
                                                std::byte* bytes, std::size_t size) {
  tlm::tlm_generic_payload& payload = access_payload_;
  payload.set_command(command);
  payload.set_address(offset);
  payload.set_data_ptr(reinterpret_cast<unsigned char*>(bytes));
  payload.set_data_length(static_cast<unsigned>(size));
  payload.set_streaming_width(static_cast<unsigned>(size));
  payload.set_byte_enable_ptr(nullptr);
  payload.set_byte_enable_length(0);
  payload.set_dmi_allowed(false);
  payload.set_response_status(tlm::TLM_INCOMPLETE_RESPONSE);
  sc_core::sc_time delay = sc_core::SC_ZERO_TIME;
  in_access_ = true;
  try {
    bar.model->b_transport(payload, delay);
  } catch (const sc_core::sc_unwind_exception&) {
    in_access_ = false;
    throw;  // the kernel's own
  } catch (const std::exception& error) {
    payload.set_response_status(tlm::TLM_GENERIC_ERROR_RESPONSE);
    complain(fmt::format("an exception left b_transport at offset {:#x}: {}", offset, error.what()));
  } catch (...) {
    payload.set_response_status(tlm::TLM_GENERIC_ERROR_RESPONSE);
    complain(fmt::format("an unknown exception left b_transport at offset {:#x}", offset));
  }
  in_access_ = false;
  if (timed_) {
    bar.busy_until = max(bar.busy_until, now()) + Picoseconds{delay.value()};
  }
  return payload.get_response_status();
}

pcie::CompletionStatus TlmAdapter::access(tlm::tlm_command command, unsigned bar_index, std::uint64_t offset,
                                          std::byte* bytes, std::size_t size) {
  Bar& bar = bars_[bar_index];
  const std::size_t most = function.bars[bar_index].max_access;
  if (bar.model == nullptr) {
    return pcie::CompletionStatus::unsupported_request;
  }
  for (std::size_t done = 0; done < size;) {
    std::size_t piece = size - done;
    if (most != 0) {
      // The largest power of two that fits, and that the offset is a multiple of.
      std::size_t unit = most;
      while (unit > piece || ((offset + done) & (unit - 1)) != 0) {
        unit /= 2;
      }
      piece = unit;
    }
    const auto status = completion_of(call_model(bar, command, offset + done, bytes + done, piece));
    if (status != pcie::CompletionStatus::success) {
      return status;
    }
    done += piece;
  }
  return pcie::CompletionStatus::success;
}

void TlmAdapter::bar_read(unsigned bar, std::uint64_t offset, std::span<std::byte> into) {
  std::fill(into.begin(), into.end(), std::byte{0});
  read_status_ = pcie::CompletionStatus::success;
  // The MSI-X table and PBA live in the VMM; here is nothing but the room for them.
  if (static_cast<int>(bar) != msix_bar_) {
    read_status_ = access(tlm::TLM_READ_COMMAND, bar, offset, into.data(), into.size());
  }
}

void TlmAdapter::bar_write(unsigned bar, std::uint64_t offset, std::span<const std::byte> from) {
  if (static_cast<int>(bar) != msix_bar_) {
    // The target of a write must not change its bytes (IEEE 1666, generic payload, data pointer attribute).
    static_cast<void>(access(tlm::TLM_WRITE_COMMAND, bar, offset, const_cast<std::byte*>(from.data()), from.size()));
  }
}

Picoseconds TlmAdapter::access_time(unsigned bar) const {
  const Picoseconds time = now();
  return bars_[bar].busy_until > time ? bars_[bar].busy_until - time : Picoseconds{};
}

// ---- DMA ------------------------------------------------------------------------------------------------

void TlmAdapter::connect_dma(tlm::tlm_bw_transport_if<>& model,
                             sc_core::sc_port_b<tlm::tlm_fw_transport_if<>>& forward) {
  channels_.push_back(std::make_unique<DmaChannel>(*this, model, channels_.size()));
  forward.bind(*channels_.back());
}

TlmAdapter::Request& TlmAdapter::take_request(tlm::tlm_generic_payload& payload, DmaChannel* channel) {
  if (free_requests_ == nullptr) {
    free_requests_ = &requests_.emplace_back();
    free_requests_->index = static_cast<std::uint32_t>(requests_.size() - 1);
  }
  Request& request = *free_requests_;
  free_requests_ = request.next;
  request.next = nullptr;
  request.payload = &payload;
  request.channel = channel;
  request.in_use = true;
  request.generation = (request.generation + 1) & 0xfff'ffffU;
  request.in_flight = request.done = request.cancelled = false;
  request.transfer = {};
  request.transfer.kind = payload.is_read() ? pcie::DmaTransfer::Kind::read : pcie::DmaTransfer::Kind::write;
  request.transfer.address = payload.get_address();
  request.transfer.length = payload.get_data_length();
  request.transfer.buffer = reinterpret_cast<std::byte*>(payload.get_data_ptr());
  request.transfer.listener = this;
  request.transfer.context = request.index;
  const DmaExtension* extension = nullptr;
  payload.get_extension(extension);
  if (extension != nullptr) {
    request.transfer.at = extension->at;
    request.transfer.attributes = extension->attributes;
    request.transfer.confirm = extension->confirm && payload.is_write();
  }
  return request;
}

void TlmAdapter::give_back(Request& request) {
  request.in_use = false;
  request.payload = nullptr;
  request.next = free_requests_;
  free_requests_ = &request;
}

void TlmAdapter::begin(Request& request) {
  request.in_flight = true;
  port_->start(request.transfer);
}

void TlmAdapter::on_dma_done(pcie::DmaTransfer& transfer) {
  Request& request = requests_[transfer.context];
  request.in_flight = false;
  finish(request);
}

void TlmAdapter::finish(Request& request) {
  request.done = true;
  request.payload->set_response_status(request.cancelled ? tlm::TLM_GENERIC_ERROR_RESPONSE
                                                         : response_of(request.transfer));
  DmaExtension* extension = nullptr;
  request.payload->get_extension(extension);
  if (extension != nullptr) {
    extension->status = request.transfer.status;
    extension->failed_address = request.transfer.failed_address;
    extension->cancelled = request.cancelled;
    extension->started = request.transfer.started;
    extension->finished = request.cancelled ? now() : request.transfer.finished;
  }
  if (request.channel != nullptr) {
    request.channel->ended(request);
  } else {
    request.ended.notify(sc_core::SC_ZERO_TIME);
  }
}

void TlmAdapter::blocking_transfer(tlm::tlm_generic_payload& payload, sc_core::sc_time& delay) {
  const sc_core::sc_curr_proc_kind kind = sc_core::sc_get_current_process_handle().proc_kind();
  if (kind != sc_core::SC_THREAD_PROC_ && kind != sc_core::SC_CTHREAD_PROC_) {
    complain("DMA by b_transport waits, so it must come from an SC_THREAD, not from a register access or an SC_METHOD");
    payload.set_response_status(tlm::TLM_GENERIC_ERROR_RESPONSE);
    return;
  }
  const tlm::tlm_response_status refused = refusal(payload);
  if (refused != tlm::TLM_OK_RESPONSE) {
    payload.set_response_status(refused);
    return;
  }
  // Also when the thread is killed inside: then nothing may go on writing to the model's buffer.
  struct Guard {
    TlmAdapter& adapter;
    Request& request;
    ~Guard() {
      if (request.in_flight) {
        request.in_flight = false;
        request.payload = nullptr;
        adapter.port_->cancel_all();
        adapter.cancel_requests();
      }
      adapter.give_back(request);
    }
  };
  Guard guard{*this, take_request(payload, nullptr)};
  Request& request = guard.request;
  if (delay != sc_core::SC_ZERO_TIME) {
    sc_core::wait(delay);
    delay = sc_core::SC_ZERO_TIME;
  }
  if (!request.done) {
    enter();
    begin(request);
    leave();
  }
  while (!request.done) {
    sc_core::wait(request.ended);
  }
}

// Every transaction that hasn't ended ends as cancelled; the endpoint has forgotten the transfers.
void TlmAdapter::cancel_requests() {
  for (Request& request : requests_) {
    if (request.in_use && !request.done && request.payload != nullptr) {
      request.in_flight = false;
      request.cancelled = true;
      finish(request);
    }
  }
}

// ---- Interrupts, reset ------------------------------------------------------------------------------------

void TlmAdapter::msix(unsigned vector) {
  if (vector >= function.msix_vectors || port_ == nullptr) {
    complain(fmt::format("MSI-X vector {} doesn't exist, the function has {}", vector, function.msix_vectors));
    return;
  }
  enter();
  if (in_access_) {
    // Who takes the interrupt may access registers at once: not inside the model's b_transport.
    pcie::Simulation& simulation = port_->simulation();
    simulation.events.schedule(simulation.now(), *this, msix_event | vector);
  } else {
    port_->msix(vector);
  }
  leave();
}

sc_core::sc_signal_inout_if<bool>& TlmAdapter::irq(unsigned vector) {
  if (vector >= pcie::most_msix_vectors) {
    throw Error(fmt::format("device {}: its model asks for irq({})", device_name_, vector),
                "MSI-X vectors are 0 to 2047");
  }
  if (vector >= irqs_.size()) {
    irqs_.resize(vector + 1);
  }
  if (irqs_[vector] == nullptr) {
    irqs_[vector] = std::make_unique<IrqSignal>(fmt::format("{}_irq{}", basename(), vector).c_str());
    sc_core::sc_spawn_options options;
    options.spawn_method();
    options.dont_initialize();
    options.set_sensitivity(&irqs_[vector]->posedge_event());
    sc_core::sc_spawn([this, vector] { msix(vector); }, fmt::format("{}_irq{}_edge", basename(), vector).c_str(),
                      &options);
  }
  return *irqs_[vector];
}

void TlmAdapter::on_reset(std::function<void()> call) {
  reset_call_ = std::move(call);
}

void TlmAdapter::reset() {
  cancel_requests();
  for (Bar& bar : bars_) {
    bar.busy_until = {};
  }
  if (reset_call_) {
    try {
      reset_call_();
    } catch (const std::exception& error) {
      complain(fmt::format("an exception left its reset: {}", error.what()));
    }
  }
}

void TlmAdapter::on_event(std::uint64_t argument) {
  if ((argument & msix_event) != 0) {
    port_->msix(static_cast<unsigned>(argument));
  } else if ((argument & respond_event) != 0) {
    channels_[argument & ~respond_event]->respond();
  } else {
    // A transaction whose annotated delay is over, unless it has been cancelled meanwhile.
    Request& request = requests_[argument & 0xffff'ffffU];
    if (request.in_use && request.generation == (argument >> 32) && !request.done && !request.in_flight) {
      begin(request);
    }
  }
}

void TlmAdapter::complain(const std::string& what) {
  if (complaints_ < most_complaints) {
    ++complaints_;
    spdlog::error("device {}: {}{}", device_name_, what,
                  complaints_ == most_complaints ? " (further complaints about this device are not shown)" : "");
  }
}

}  // namespace orrery::models
