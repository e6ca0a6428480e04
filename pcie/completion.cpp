#include "pcie/completion.h"

#include <algorithm>

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
  completion->byte_count = request.type == TlpType::MRd ? request.length + request.byte_count : 4;
  completion->count = request.count;
  completion->unit = request.unit;
  return completion;
}

TlpPtr make_data_completion(Simulation& simulation, const Tlp& request, Bdf completer, std::uint32_t offset,
                            std::uint32_t length, std::uint32_t unit) {
  TlpPtr completion = simulation.tlps.make();
  fill(*completion, simulation, request, completer);
  completion->type = TlpType::CplD;
  completion->address = request.address + offset;
  completion->byte_count = request.length - offset + request.byte_count;
  completion->length = length;
  if (!simulation.timed) {
    completion->unit = request.count > 1 ? std::min(unit, request.unit) : unit;
    completion->count = tlps_needed(completion->address, length, completion->unit);
  }
  return completion;
}

}  // namespace orrery::pcie
