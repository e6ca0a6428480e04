#include "pcie/root_complex.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "common/error.h"
#include "common/ordered_copy.h"
#include "pcie/burst.h"
#include "pcie/completion.h"
#include "pcie/root_complex_parts.h"

namespace orrery::pcie {

namespace {
// What an event of the root complex is about; kept in Tlp::cookie with the port's index.
constexpr std::uint64_t event_inbound = 0;
constexpr std::uint64_t event_outbound = std::uint64_t{1} << 32;
constexpr std::uint64_t port_mask = 0xffff'ffff;

bool in_interrupt_window(const Tlp& tlp) {
  return tlp.type == TlpType::MWr && tlp.at == AddressType::untranslated &&
         tlp.address - interrupt_window_start < interrupt_window_size;
}
}  // namespace

RootComplex::RootComplex(Simulation& simulation, const std::string& name, const RootComplexSettings& settings,
                         Iommu& iommu, HostMemory& memory, InterruptController& interrupts)
    : simulation_(simulation),
      settings_(settings),
      iommu_(iommu),
      memory_(memory),
      interrupts_(interrupts),
      id_(simulation.names.add(name)),
      memory_id_(simulation.names.add(name + ".memory")),
      pending_(std::make_unique<Pending>()) {
  port_of_bus_.fill(-1);
}

RootComplex::~RootComplex() = default;

unsigned RootComplex::add_port(const std::string& name, unsigned socket, BusRange buses, const AcsControl& acs) {
  const auto index = static_cast<unsigned>(ports_.size());
  auto port = std::make_unique<Port>(*this, index);
  port->socket = socket;
  port->buses = buses;
  port->acs = acs;
  for (unsigned bus = buses.secondary; bus <= buses.subordinate; ++bus) {
    if (bus >= port_of_bus_.size() || port_of_bus_[bus] >= 0) {
      throw Error(fmt::format("root port {}: bus {} is taken or above 255", name, bus),
                  "give every port buses of its own");
    }
    port_of_bus_[bus] = static_cast<std::int16_t>(index);
  }
  ports_.push_back(std::move(port));
  return index;
}

TlpSink& RootComplex::ingress(unsigned port) {
  return *ports_.at(port);
}
void RootComplex::connect(unsigned port, TlpSink& egress) {
  ports_.at(port)->egress = &egress;
}

bool RootComplex::add_window(unsigned port, std::uint64_t start, std::uint64_t size) {
  return windows_.insert(start, size, port);
}
void RootComplex::clear_windows() {
  windows_.clear();
}

Picoseconds RootComplex::receive(unsigned port, TlpPtr tlp, Picoseconds delay) {
  if (!simulation_.timed) {
    handle(port, std::move(tlp));
    return {};
  }
  tlp->latency.add(id_).process += static_cast<std::uint32_t>(settings_.latency.count);
  tlp->cookie = event_inbound | port;
  simulation_.events.schedule(simulation_.now() + delay + settings_.latency, *this,
                              reinterpret_cast<std::uintptr_t>(tlp.release()));
  return delay;
}

void RootComplex::on_event(std::uint64_t argument) {
  TlpPtr tlp(reinterpret_cast<Tlp*>(static_cast<std::uintptr_t>(argument)));
  const auto port = static_cast<unsigned>(tlp->cookie & port_mask);
  if ((tlp->cookie & ~port_mask) == event_outbound) {
    ports_[port]->egress->receive(std::move(tlp), {});
  } else {
    handle(port, std::move(tlp));
  }
}

void RootComplex::send(unsigned port, TlpPtr tlp, Picoseconds delay) {
  Port& out = *ports_[port];
  if (out.egress == nullptr) {
    const int back = port_of(tlp->requester);
    if (back >= 0) {
      fail(static_cast<unsigned>(back), *tlp, CompletionStatus::unsupported_request);
    }
    return;
  }
  if (!simulation_.timed) {
    out.egress->receive(std::move(tlp), {});
    return;
  }
  const Picoseconds now = simulation_.now();
  Picoseconds at = now + delay;
  if (at < out.posted_ready) {
    tlp->latency.add(id_).queue += static_cast<std::uint32_t>((out.posted_ready - at).count);
    at = out.posted_ready;
  }
  const bool alone = out.posted_ready < now;  // no posted request waits for its event at this very time
  if (is_posted(tlp->type)) {
    out.posted_ready = at;
  }
  if (at == now && alone) {
    out.egress->receive(std::move(tlp), {});
    return;
  }
  tlp->cookie = event_outbound | port;
  simulation_.events.schedule(at, *this, reinterpret_cast<std::uintptr_t>(tlp.release()));
}

void RootComplex::handle(unsigned port, TlpPtr tlp) {
  if (is_completion(tlp->type)) {
    handle_completion(port, std::move(tlp));
  } else if (is_memory(tlp->type)) {
    handle_memory(port, std::move(tlp));
  } else if (!is_message(tlp->type)) {
    fail(port, *tlp, CompletionStatus::unsupported_request);
  }
  // Messages end here: error and power management messages get their consumers with AER and PRI.
}

void RootComplex::handle_completion(unsigned port, TlpPtr tlp) {
  if (tlp->requester == bdf()) {
    complete_host_read(*tlp);
    return;
  }
  const int target = port_of(tlp->requester);
  if (target < 0) {
    ++counters_.unexpected_completions;
    return;
  }
  Picoseconds delay;
  if (simulation_.timed && ports_[port]->socket != ports_[static_cast<unsigned>(target)]->socket) {
    delay = settings_.socket_link;
    tlp->latency.add(id_).process += static_cast<std::uint32_t>(delay.count);
  }
  send(static_cast<unsigned>(target), std::move(tlp), delay);
}

void RootComplex::handle_memory(unsigned port, TlpPtr tlp) {
  if (in_interrupt_window(*tlp)) {
    // A message is one aligned DW; whatever else is written there has no meaning and goes nowhere.
    if (tlp->length != sizeof(std::uint32_t) || (tlp->address & 3U) != 0 || tlp->data == nullptr) {
      counters_.unsupported += tlp->count;
      return;
    }
    counters_.interrupts += 1;
    std::uint32_t data = 0;
    std::memcpy(&data, tlp->data, sizeof(data));
    interrupts_.interrupt(tlp->requester, tlp->address, data);
    return;
  }
  if (tlp->length == 0 || (tlp->type == TlpType::MWr && tlp->data == nullptr)) {
    counters_.unsupported += tlp->count;
    fail(port, *tlp, CompletionStatus::unsupported_request);
    return;
  }
  if (tlp->at == AddressType::translation_request) {
    counters_.unsupported += tlp->count;
    fail(port, *tlp, CompletionStatus::unsupported_request);
    return;
  }
  if (tlp->at == AddressType::translated && !translated_allowed_.test(tlp->requester.value)) {
    counters_.translated_blocked += tlp->count;
    fail(port, *tlp, CompletionStatus::completer_abort);
    return;
  }

  const std::uint32_t total = tlp->length;
  for (std::uint32_t offset = 0; offset < total;) {
    // The part that is the whole TLP takes it, and is the last.
    const Destination destination = resolve(*tlp, offset);  // NOLINT(bugprone-use-after-move)
    const std::uint32_t bytes = destination.bytes;
    switch (destination.kind) {
      case Destination::Kind::direct:
        if (tlp->type == TlpType::MWr) {
          write_direct(*tlp, destination, offset);
        } else {
          read_direct(port, *tlp, destination, offset);
        }
        break;
      case Destination::Kind::peer:
      case Destination::Kind::remote: {
        TlpPtr part = bytes == total ? std::move(tlp) : request_part(simulation_, *tlp, offset, bytes);
        if (destination.kind == Destination::Kind::peer) {
          part->address = destination.address.value;
          to_peer(port, destination.port, std::move(part));
        } else {
          remote_access(port, std::move(part), destination.address);
        }
        break;
      }
      case Destination::Kind::fault:
      case Destination::Kind::nowhere: {
        const TlpPtr part = request_part(simulation_, *tlp, offset, bytes);
        (destination.kind == Destination::Kind::fault ? counters_.translation_faults : counters_.unsupported) +=
            part->count;
        fail(port, *part, CompletionStatus::unsupported_request);
        break;
      }
    }
    offset += bytes;
  }
}

RootComplex::Destination RootComplex::resolve(const Tlp& tlp, std::uint32_t offset) {
  const std::uint64_t bus_address = tlp.address + offset;
  const std::uint32_t left = tlp.length - offset;
  // The single TLP of a burst that holds this offset: what goes wrong goes wrong TLP by TLP, as on a wire.
  const std::uint32_t one = tlp.count == 1 ? left : completion_chunk(bus_address, left, tlp.unit);
  Destination result;
  result.address = Hpa{bus_address};
  std::uint64_t bytes = left;
  if (tlp.at == AddressType::untranslated) {
    const DmaDirection direction = tlp.type == TlpType::MWr ? DmaDirection::write : DmaDirection::read;
    const TranslationRequest query{tlp.requester, Iova{bus_address}, bytes, direction, simulation_.now()};
    Translation translation;
    if (is_zero_length_read(tlp)) {
      // A zero-length read reads nothing: it may go where only writes may (VT-d's ZLR capability).
      translation = iommu_.probe(query);
      if (translation.fault == IommuFaultReason::read_permission) {
        TranslationRequest as_write = query;
        as_write.direction = DmaDirection::write;
        translation = iommu_.translate(as_write);
      } else if (!translation.ok()) {
        translation = iommu_.translate(query);  // for the record
      }
    } else {
      translation = iommu_.translate(query);
    }
    if (!translation.ok()) {
      result.kind = Destination::Kind::fault;
      result.bytes = one;
      return result;
    }
    result.address = translation.address;
    bytes = translation.bytes;
  }
  if (const auto* window = windows_.find(result.address.value)) {
    result.kind = settings_.peer_to_peer ? Destination::Kind::peer : Destination::Kind::nowhere;
    result.port = window->value;
    // A TLP that reaches over the window's end goes whole to where it begins, as in any switch.
    const std::uint64_t room = window->start + window->size - result.address.value;
    bytes = std::min(bytes, std::max<std::uint64_t>(room, one));
  } else {
    result.window = memory_.find(result.address);
    if (result.window.kind == HostMemory::Kind::none) {
      result.bytes = one;
      return result;
    }
    result.kind =
        result.window.kind == HostMemory::Kind::direct ? Destination::Kind::direct : Destination::Kind::remote;
    // A BAR's window takes precedence wherever it begins.
    const std::uint64_t free = windows_.uniform(result.address.value);
    bytes = std::min({bytes, result.window.contiguous, free == 0 ? bytes : free});
  }
  result.bytes = static_cast<std::uint32_t>(bytes);
  if (result.bytes < left && tlp.count > 1) {
    // Cut between TLPs rather than within one.
    const std::uint64_t cut = (bus_address + result.bytes) & ~std::uint64_t{tlp.unit - 1};
    if (cut > bus_address) {
      result.bytes = static_cast<std::uint32_t>(cut - bus_address);
    }
  }
  return result;
}

void RootComplex::write_direct(const Tlp& request, const Destination& destination, std::uint32_t offset) {
  const std::uint32_t bytes = destination.bytes;
  counters_.memory_writes += request.count == 1 ? 1 : tlps_needed(request.address + offset, bytes, request.unit);
  copy_in_order(destination.window.bytes, request.data + offset, bytes);
  memory_.device_wrote(destination.address, {destination.window.bytes, bytes});
}

void RootComplex::read_direct(unsigned port, const Tlp& request, const Destination& destination, std::uint32_t offset) {
  static constexpr std::array<std::byte, 4> nothing{};
  const std::uint32_t length = destination.bytes;
  const std::byte* bytes = destination.window.bytes;
  counters_.memory_reads += request.count == 1 ? 1 : tlps_needed(request.address + offset, length, request.unit);
  if (is_zero_length_read(request)) {
    bytes = nothing.data();
  } else {
    memory_.device_reads(destination.address, {bytes, length});
  }
  if (!simulation_.timed) {
    TlpPtr completion = make_data_completion(simulation_, request, bdf(), offset, length, settings_.completion_unit);
    completion->borrow({bytes, length});
    send(port, std::move(completion), {});
    return;
  }
  const Picoseconds access = memory_.access_time(destination.window.node, ports_[port]->socket);
  for (std::uint32_t done = 0; done < length;) {
    const std::uint32_t chunk =
        completion_chunk(request.address + offset + done, length - done, settings_.completion_unit);
    TlpPtr completion =
        make_data_completion(simulation_, request, bdf(), offset + done, chunk, settings_.completion_unit);
    completion->store({bytes + done, chunk});
    completion->latency.add(memory_id_).process += static_cast<std::uint32_t>(access.count);
    respond(port, std::move(completion), access);
    done += chunk;
  }
}

void RootComplex::to_peer(unsigned port, unsigned target, TlpPtr tlp) {
  counters_.peer_to_peer += tlp->count;
  counters_.peer_to_peer_bytes += tlp->length;
  Picoseconds delay;
  if (simulation_.timed && ports_[port]->socket != ports_[target]->socket) {
    delay = settings_.socket_link;
    tlp->latency.add(id_).process += static_cast<std::uint32_t>(delay.count);
  }
  send(target, std::move(tlp), delay);
}

void RootComplex::remote_access(unsigned port, TlpPtr tlp, Hpa address) {
  std::size_t slot = pending_->remote.size();
  if (pending_->remote_free.empty()) {
    pending_->remote.emplace_back();
  } else {
    slot = pending_->remote_free.back();
    pending_->remote_free.pop_back();
  }
  Pending::Remote& remote = pending_->remote[slot];
  remote.port = port;
  if (tlp->type == TlpType::MRd) {
    counters_.memory_reads += tlp->count;
    remote.completion = make_data_completion(simulation_, *tlp, bdf(), 0, tlp->length, settings_.completion_unit);
    const std::span<std::byte> into = remote.completion->reserve(tlp->length);
    remote.request = std::move(tlp);
    memory_.read_remote(address, into, *this, slot);
  } else {
    counters_.memory_writes += tlp->count;
    if (tlp->borrowed()) {
      tlp->store(tlp->payload());  // the sender's bytes don't outlive this call
    }
    const std::span<const std::byte> from = tlp->payload();
    remote.request = std::move(tlp);
    memory_.write_remote(address, from, *this, slot);
  }
}

void RootComplex::on_host_memory(std::uint64_t context, bool ok) {
  Pending::Remote& slot = pending_->remote[context];
  const unsigned port = slot.port;
  const TlpPtr request = std::move(slot.request);
  TlpPtr completion = std::move(slot.completion);
  pending_->remote_free.push_back(context);
  if (completion == nullptr) {
    return;
  }
  if (!ok) {
    fail(port, *request, CompletionStatus::completer_abort);
    return;
  }
  if (!simulation_.timed) {
    send(port, std::move(completion), {});
    return;
  }
  const std::span<const std::byte> bytes = completion->payload();
  for (std::uint32_t done = 0; done < bytes.size();) {
    const std::uint32_t chunk = completion_chunk(
        request->address + done, static_cast<std::uint32_t>(bytes.size()) - done, settings_.completion_unit);
    TlpPtr part = make_data_completion(simulation_, *request, bdf(), done, chunk, settings_.completion_unit);
    part->store(bytes.subspan(done, chunk));
    respond(port, std::move(part), {});
    done += chunk;
  }
}

void RootComplex::fail(unsigned port, const Tlp& request, CompletionStatus status) {
  if (is_posted(request.type) || is_completion(request.type)) {
    return;
  }
  TlpPtr completion = make_completion(simulation_, request, bdf(), status);
  if (request.requester == bdf()) {
    complete_host_read(*completion);
  } else {
    respond(port, std::move(completion), {});
  }
}

void RootComplex::respond(unsigned port, TlpPtr completion, Picoseconds after) {
  if (simulation_.timed) {
    completion->latency.add(id_).process += static_cast<std::uint32_t>(settings_.latency.count);
    after += settings_.latency;
  }
  send(port, std::move(completion), after);
}

}  // namespace orrery::pcie
