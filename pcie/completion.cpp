#include "pcie/completion.h"

namespace orrery::pcie {

namespace {
void fill(Tlp& completion, const Simulation& simulation, const Tlp& request, Bdf completer) {
  completion.attributes = request.attributes;
  completion.traffic_class = request.traffic_class;
  completion.requester = request.requester;
  completion.completer = completer;
  completion.tag = request.tag;
  completion.created = request.created;
  if (simulation.timed) {
    completion.latency.copy_from(request.latency);
  }
}
}  // namespace

TlpPtr make_completion(Simulation& simulation, const Tlp& request, Bdf completer, CompletionStatus status) {
  TlpPtr completion = simulation.tlps.make();
  fill(*completion, simulation, request, completer);
  completion->type = TlpType::Cpl;
  completion->status = status;
  completion->address = request.address;
  completion->byte_count = request.type == TlpType::MRd ? request.length : 4;
  return completion;
}

TlpPtr make_data_completion(Simulation& simulation, const Tlp& request, Bdf completer, std::uint32_t offset,
                            std::uint32_t length, std::uint32_t unit) {
  TlpPtr completion = simulation.tlps.make();
  fill(*completion, simulation, request, completer);
  completion->type = TlpType::CplD;
  completion->address = request.address + offset;
  completion->byte_count = request.length - offset;
  completion->length = length;
  if (!simulation.timed) {
    completion->count = tlps_needed(completion->address, length, unit);
    completion->unit = unit;
  }
  return completion;
}

}  // namespace orrery::pcie
