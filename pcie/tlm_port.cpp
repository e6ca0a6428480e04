#include "pcie/tlm_port.h"

#include <memory>
#include <utility>
#include <vector>

namespace orrery::pcie {

namespace {

// Recycles payloads. A TLP holds one reference to the payload that it travels by, and a sender one more for the
// time of its call; a payload that somebody else still refers to comes back when they let go.
class CarrierPool final : public tlm::tlm_mm_interface {
 public:
  struct Carrier {
    explicit Carrier(CarrierPool& pool) : payload(&pool) { payload.set_extension(&extension); }
    ~Carrier() { payload.clear_extension(&extension); }
    Carrier(const Carrier&) = delete;
    Carrier& operator=(const Carrier&) = delete;
    tlm::tlm_generic_payload payload;
    TlpExtension extension;
  };

  // With one reference.
  Carrier& take() {
    if (free_.empty()) {
      all_.push_back(std::make_unique<Carrier>(*this));
      all_.back()->extension.carrier = all_.back().get();
      free_.reserve(all_.size());
      free_.push_back(all_.back().get());
    }
    Carrier& carrier = *free_.back();
    free_.pop_back();
    carrier.payload.acquire();
    return carrier;
  }
  // The TLP is gone.
  static void let_go(Carrier& carrier) {
    carrier.extension.tlp = nullptr;
    carrier.payload.set_data_ptr(nullptr);
    carrier.payload.release();
  }
  void free(tlm::tlm_generic_payload* payload) override {
    TlpExtension* extension = nullptr;
    payload->get_extension(extension);
    free_.push_back(static_cast<Carrier*>(extension->carrier));
  }

 private:
  std::vector<std::unique_ptr<Carrier>> all_;
  std::vector<Carrier*> free_;
};

CarrierPool& carriers() {
  static CarrierPool pool;
  return pool;
}

tlm::tlm_generic_payload& payload_of(Tlp& tlp) {
  auto* carrier = static_cast<CarrierPool::Carrier*>(tlp.carrier);
  if (carrier == nullptr) {
    carrier = &carriers().take();
    carrier->extension.tlp = &tlp;
    carrier->payload.set_command(tlp.type == TlpType::MWr ? tlm::TLM_WRITE_COMMAND : tlm::TLM_IGNORE_COMMAND);
    tlp.carrier = carrier;
  }
  // What a component on the way may have changed.
  tlm::tlm_generic_payload& payload = carrier->payload;
  payload.set_address(tlp.address);
  payload.set_data_ptr(reinterpret_cast<unsigned char*>(tlp.data));
  payload.set_data_length(tlp.length);
  payload.set_streaming_width(tlp.length);
  payload.set_response_status(tlm::TLM_INCOMPLETE_RESPONSE);
  return payload;
}

Picoseconds from_sc(const sc_core::sc_time& time) {
  return {time.value()};
}
// Most delays are zero, and a conversion is a call into the library.
sc_core::sc_time to_sc(Picoseconds time) {
  return time == Picoseconds{} ? sc_core::sc_time() : sc_core::sc_time::from_value(time.count);
}

}  // namespace

tlm::tlm_extension_base* TlpExtension::clone() const {
  return new TlpExtension(*this);
}
void TlpExtension::copy_from(const tlm::tlm_extension_base& other) {
  tlp = static_cast<const TlpExtension&>(other).tlp;
}

void use_tlm_carriers(TlpPool& pool) {
  carriers();  // constructed before, thus destroyed after, whoever uses the pool from static storage
  pool.set_carrier_hook([](void* carrier) { CarrierPool::let_go(*static_cast<CarrierPool::Carrier*>(carrier)); });
}

TlpInitiator::TlpInitiator(const char* name) : socket(name) {
  socket.bind(*this);
}

Picoseconds TlpInitiator::receive(TlpPtr tlp, Picoseconds delay) {
  if (direct_ != nullptr) [[likely]] {
    return direct_->receive(std::move(tlp), delay);
  }
  if (!resolved_) {
    resolved_ = true;
    if (auto* target = dynamic_cast<TlpTarget*>(socket.operator->())) {
      direct_ = &target->core();
      return direct_->receive(std::move(tlp), delay);
    }
  }
  return send_payload(std::move(tlp), delay);
}

Picoseconds TlpInitiator::send_payload(TlpPtr tlp, Picoseconds delay) {
  tlm::tlm_generic_payload& payload = payload_of(*tlp);
  tlm::tlm_phase phase = tlm::BEGIN_REQ;
  sc_core::sc_time annotated = to_sc(delay);
  static_cast<void>(tlp.release());  // the callee's from here
  payload.acquire();
  socket->nb_transport_fw(payload, phase, annotated);
  payload.release();
  return from_sc(annotated);
}

tlm::tlm_sync_enum TlpInitiator::nb_transport_bw(tlm::tlm_generic_payload& /*payload*/, tlm::tlm_phase& /*phase*/,
                                                 sc_core::sc_time& /*delay*/) {
  SC_REPORT_ERROR("orrery/tlp", "nb_transport_bw is not used on a TLP socket: a TLP is completed by its call");
  return tlm::TLM_ACCEPTED;
}

void TlpInitiator::invalidate_direct_mem_ptr(sc_dt::uint64 /*start*/, sc_dt::uint64 /*end*/) {}

TlpTarget::TlpTarget(const char* name, TlpSink& core) : socket(name), core_(core) {
  socket.bind(*this);
}

tlm::tlm_sync_enum TlpTarget::nb_transport_fw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                                              sc_core::sc_time& delay) {
  if (phase != tlm::BEGIN_REQ) {
    return tlm::TLM_ACCEPTED;
  }
  TlpTarget::b_transport(payload, delay);
  return tlm::TLM_COMPLETED;
}

void TlpTarget::b_transport(tlm::tlm_generic_payload& payload, sc_core::sc_time& delay) {
  TlpExtension* extension = nullptr;
  payload.get_extension(extension);
  if (extension == nullptr || extension->tlp == nullptr) {
    payload.set_response_status(tlm::TLM_COMMAND_ERROR_RESPONSE);
    return;
  }
  payload.set_response_status(tlm::TLM_OK_RESPONSE);
  delay = to_sc(core_.receive(TlpPtr(extension->tlp), from_sc(delay)));
}

bool TlpTarget::get_direct_mem_ptr(tlm::tlm_generic_payload& /*payload*/, tlm::tlm_dmi& /*dmi*/) {
  return false;
}
unsigned TlpTarget::transport_dbg(tlm::tlm_generic_payload& /*payload*/) {
  return 0;
}

}  // namespace orrery::pcie
